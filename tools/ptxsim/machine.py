"""Runs kernels: threads, registers and the order of instructions."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import numpy.typing as npt

from ptxsim.memory import Buffer, Bytes, FaultError, Memory, Threads
from ptxsim.operations import OPERATIONS, SOURCE_TYPES, check
from ptxsim.program import Instruction, Kernel, Program, UnsupportedError
from ptxsim.values import Array, bits_of, immediate, numpy_type

_PARAMETERS = 0x1000  # address of the arguments, in a space of their own
_ADDRESS = re.compile(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]")
_VECTOR = re.compile(r"[%\w]+")


class Machine:
    """A device with memory, and programs to run on it.

    Parameters
    ----------
    program : Program
        Whose kernels it runs.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.memory = Memory()

    def add(self, contents: npt.NDArray, misalignment: int = 0) -> Buffer:
        """Add a buffer that holds a copy of an array."""
        return self.memory.add(contents, misalignment)

    def launch(
        self, kernel: Kernel, grid: tuple[int, int], block: int, arguments: bytes, at_once: int = 64
    ) -> Counter[str]:
        """Run a kernel to its end.

        Parameters
        ----------
        kernel : Kernel
            One of the program's.
        grid : tuple of int
            Thread blocks along x and y.
        block : int
            Threads in a thread block: a multiple of 32.
        arguments : bytes
            The kernel's parameter.
        at_once : int
            Thread blocks that run together; a matter of speed only.

        Returns
        -------
        Counter
            How often each kind of instruction was carried out, summed over threads.
        """
        if len(arguments) != kernel.parameter_bytes:
            raise ValueError(f"{len(arguments)} bytes of arguments, not {kernel.parameter_bytes}")
        for buffer in self.memory.buffers:
            buffer.reset()
        total = grid[0] * grid[1]
        steps: Counter[str] = Counter()
        for first in range(0, total, at_once):
            blocks = np.arange(first, min(first + at_once, total))
            steps += _Run(self.memory, kernel, blocks, grid, block, arguments).run()
        return steps


class _Run:
    """Some thread blocks of a launch."""

    def __init__(
        self,
        memory: Memory,
        kernel: Kernel,
        blocks: npt.NDArray[np.int64],
        grid: tuple[int, int],
        block: int,
        arguments: bytes,
    ) -> None:
        self.memory = memory
        self.kernel = kernel
        self.arguments: Bytes = np.frombuffer(arguments, np.uint8)
        count = blocks.size * block
        thread = np.tile(np.arange(block), blocks.size)
        block_of = np.repeat(blocks, block)
        self.identity: Threads = block_of * block + thread
        self.lane: Threads = thread % 32
        self.warp: Threads = np.arange(count) // 32
        self.special = {
            "%tid.x": thread,
            "%ntid.x": np.full(count, block),
            "%ctaid.x": block_of % grid[0],
            "%ctaid.y": block_of // grid[0],
            "%nctaid.x": np.full(count, grid[0]),
        }
        self.registers: dict[str, Array] = {}
        self.next = np.zeros(count, np.int64)
        self.live = np.ones(count, bool)
        self.waiting = np.zeros(count, bool)

    def run(self) -> Counter[str]:
        """Run all threads to their end; those furthest behind first, so that they meet again."""
        steps: Counter[str] = Counter()
        with np.errstate(all="ignore"):
            while self.live.any():
                able = self.live & ~self.waiting
                if not able.any():
                    raise FaultError("lanes wait for others that have left or are elsewhere")
                at = int(self.next[able].min())
                threads = np.flatnonzero(self.live & (self.next == at))
                instruction = self.kernel.code[at]
                if instruction.name in ("shfl", "bar"):
                    threads = self.meet(instruction, threads)
                self.next[threads] += 1
                if instruction.guard is not None:
                    allowed = self.register(instruction.guard)[threads]
                    threads = threads[allowed ^ instruction.guard_negated]
                steps[instruction.kind] += threads.size
                if threads.size:
                    self.execute(instruction, threads)
        return steps

    def meet(self, instruction: Instruction, threads: Threads) -> Threads:
        """Make lanes wait until their whole warp is there; return those that may go on."""
        if instruction.guard is not None:
            raise UnsupportedError(str(instruction))
        here = np.bincount(self.warp[threads], minlength=int(self.warp.max()) + 1)
        complete = here[self.warp[threads]] == 32
        self.waiting[threads] = ~complete
        return threads[complete]

    def execute(self, instruction: Instruction, threads: Threads) -> None:
        """Carry out one instruction for some threads."""
        check(instruction)
        name, operands = instruction.name, instruction.operands
        if name == "bra":
            self.next[threads] = self.kernel.labels[operands[0]]
        elif name == "ret":
            self.live[threads] = False
        elif name == "ld":
            self.load(instruction, threads)
        elif name == "st":
            self.store(instruction, threads)
        elif name == "shfl":
            self.shuffle(instruction, threads)
        elif name == "bar":
            self.synchronize(instruction, threads)
        elif name == "mov" and (operands[0][0] == "{" or operands[1][0] == "{"):
            self.repack(instruction, threads)
        elif name in OPERATIONS:
            types = SOURCE_TYPES.get(name, lambda i: (i.type,) * 3)(instruction)
            sources = [self.read(o, t, threads) for o, t in zip(operands[1:], types, strict=False)]
            self.write(operands[0], OPERATIONS[name](instruction, *sources), threads)
        else:
            raise UnsupportedError(str(instruction))

    # Registers

    def width(self, register: str) -> str:
        """Type of a register by the prefix of its name."""
        return self.kernel.registers[register.rstrip("0123456789")]

    def register(self, name: str) -> Array:
        """All threads' values of a register, which are garbage until it is written."""
        if name not in self.registers:
            kind = self.width(name)
            dtype = numpy_type("pred" if kind == "pred" else f"u{bits_of(kind)}")
            self.registers[name] = np.frombuffer(
                bytes([0xCD, 1]) * (self.next.size * dtype.itemsize), dtype
            )[: self.next.size].copy()
        return self.registers[name]

    def read(self, operand: str, ptx_type: str, threads: Threads) -> Array:
        """Value of an operand, as a type, in some threads."""
        if operand in self.special:
            return self.special[operand][threads].astype(numpy_type(ptx_type))
        if operand.startswith("!"):
            return ~self.read(operand[1:], ptx_type, threads)
        if operand.startswith("%"):
            value = self.register(operand)[threads]
            if ptx_type == "pred":
                return value
            return value.astype(f"u{bits_of(ptx_type) // 8}").view(numpy_type(ptx_type))
        if operand == self.kernel.parameters:
            return np.full(threads.size, _PARAMETERS, numpy_type(ptx_type))
        return np.broadcast_to(immediate(operand, ptx_type), threads.shape)

    def write(self, register: str, value: Array, threads: Threads) -> None:
        """Set a register in some threads; narrower values are extended by their own sign."""
        if register == "_":
            return
        kind = self.width(register)
        bits = value
        if kind != "pred":
            unsigned = np.dtype(f"u{bits_of(kind) // 8}")
            if value.dtype.kind == "f":
                value = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")
            bits = value.astype(unsigned)
        self.register(register)[threads] = bits

    def repack(self, instruction: Instruction, threads: Threads) -> None:
        """Mov between one register and several narrower ones."""
        to, of = instruction.operands
        whole = instruction.type
        parts = _VECTOR.findall(to if to[0] == "{" else of)
        width = bits_of(whole) // len(parts)
        shifts = [np.array(i * width, numpy_type(whole)) for i in range(len(parts))]
        if to[0] == "{":
            value = self.read(of, whole, threads)
            for part, shift in zip(parts, shifts, strict=True):
                self.write(part, (value >> shift).astype(f"u{width // 8}"), threads)
            return
        value = np.zeros(threads.size, numpy_type(whole))
        for part, shift in zip(parts, shifts, strict=True):
            value |= self.read(part, f"b{width}", threads).astype(value.dtype) << shift
        self.write(to, value, threads)

    # Memory

    def addresses(self, operand: str, threads: Threads) -> Threads:
        match = _ADDRESS.match(operand)
        if match is None:
            raise UnsupportedError(operand)
        return self.read(match[1], "u64", threads).astype(np.int64) + int(match[2] or 0)

    def load(self, instruction: Instruction, threads: Threads) -> None:
        targets = _VECTOR.findall(instruction.operands[0])
        kind = numpy_type(instruction.type)
        size = kind.itemsize * len(targets)
        addresses = self.addresses(instruction.operands[1], threads)
        space = instruction.modifiers[0]
        if space == "param":
            at = addresses - _PARAMETERS
            if (at < 0).any() or (at + size > self.arguments.size).any() or (at % size).any():
                raise FaultError(f"{instruction}: outside the arguments")
            rows = self.arguments[at[:, None] + np.arange(size)]
        elif space == "global":
            rows = self.memory.load(addresses, size, self.identity[threads])
        else:
            raise UnsupportedError(str(instruction))
        values = np.ascontiguousarray(rows).view(kind)
        for column, target in enumerate(targets):
            self.write(target, values[:, column], threads)

    def store(self, instruction: Instruction, threads: Threads) -> None:
        if instruction.modifiers[0] != "global":
            raise UnsupportedError(str(instruction))
        sources = _VECTOR.findall(instruction.operands[1])
        values = [self.read(source, instruction.type, threads) for source in sources]
        rows = np.ascontiguousarray(np.stack(values, axis=1)).view(np.uint8)
        addresses = self.addresses(instruction.operands[0], threads)
        self.memory.store(addresses, rows, self.identity[threads])

    # Warps

    def synchronize(self, instruction: Instruction, threads: Threads) -> None:
        """bar.warp.sync over whole warps: having met is all, since memory is always in order."""
        masks = self.read(instruction.operands[0], "u32", threads)
        if instruction.modifiers != ("warp", "sync") or (masks != 0xFFFFFFFF).any():
            raise UnsupportedError(str(instruction))

    def shuffle(self, instruction: Instruction, threads: Threads) -> None:
        """shfl.sync.bfly over whole warps, which is what block reductions use."""
        if instruction.modifiers != ("sync", "bfly", "b32"):
            raise UnsupportedError(str(instruction))
        targets, source, distance, clamp, mask = instruction.operands
        masks = self.read(mask, "u32", threads)
        clamps = self.read(clamp, "u32", threads)
        if (masks != 0xFFFFFFFF).any() or (clamps != 31).any():
            raise UnsupportedError(f"{instruction}: not over the whole warp")
        brought = np.zeros(self.next.size, np.uint32)
        brought[threads] = self.read(source, "b32", threads)
        partner = self.lane[threads] ^ self.read(distance, "u32", threads).astype(np.int64)
        register, _, predicate = targets.partition("|")
        self.write(register, brought[threads - self.lane[threads] + partner], threads)
        if predicate:
            self.write(predicate, np.ones(threads.size, bool), threads)
