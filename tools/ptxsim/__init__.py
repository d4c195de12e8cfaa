"""Runs the PTX that nvcc emitted, on the CPU, without a GPU.

Every register is a NumPy array with one element per CUDA thread, and each instruction is carried
out for all threads that are at it. Integer and correctly rounded fp32 instructions have a meaning
to the bit, and results are those of a device; a NaN that arithmetic makes is CUDA's, 0x7fffffff.
Anything without such a meaning (``.approx``, ``.ftz``, whatever is not listed) is an
`UnsupportedError`.

While a kernel runs, each access to memory is checked: inside a buffer, aligned to its size, no
byte stored twice, and no byte stored by one thread that another one loads. A violation is a
`FaultError`.
"""

from ptxsim.machine import Machine
from ptxsim.memory import Buffer, FaultError
from ptxsim.program import Program, UnsupportedError

__all__ = ["Buffer", "FaultError", "Machine", "Program", "UnsupportedError"]
