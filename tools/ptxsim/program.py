"""PTX text taken apart into kernels and instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


class UnsupportedError(Exception):
    """An instruction or directive that has no meaning here."""


@dataclass(frozen=True)
class Instruction:
    """One instruction, e.g. ``@!%p1 add.s64 %rd1, %rd2, 8``."""

    guard: str | None
    """Predicate register that must be true (false if `guard_negated`)."""
    guard_negated: bool
    name: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def type(self) -> str:
        """The last modifier: the type that the instruction works on."""
        return self.modifiers[-1]

    @property
    def kind(self) -> str:
        """The mnemonic, e.g. ``add.s64``."""
        return ".".join((self.name, *self.modifiers))

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(self.operands)}"


@dataclass
class Kernel:
    """One entry point."""

    name: str
    parameters: str
    """Name of its only parameter, a struct."""
    parameter_bytes: int
    registers: dict[str, str] = field(default_factory=dict)
    """Prefix of a register's name to its type, e.g. ``%rd`` to ``b64``."""
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


_ENTRY = re.compile(
    r"\.entry\s+(\w+)\s*\(\s*\.param\s+\.align\s+\d+\s+\.b8\s+(\w+)\[(\d+)\]\s*\)[^{]*\{"
)
_REGISTER = re.compile(r"\.reg\s+\.(\w+)\s+(%[a-zA-Z]+)<\d+>$")
_INSTRUCTION = re.compile(r"(?:@(!?)(%\w+)\s+)?([\w.:]+)\s*(.*)$", re.DOTALL)
# A move of which one half is wanted: nvcc declares a register for the other.
_SCRATCH = re.compile(r"\{\s*\.reg\s+\.\w+\s+tmp;\s*(mov[^;]*);\s*\}")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")


class Program:
    """The kernels of one PTX file.

    Parameters
    ----------
    text : str
        What ``nvcc -ptx`` wrote.
    """

    def __init__(self, text: str) -> None:
        text = re.sub(r"//[^\n]*", "", text)
        text = _SCRATCH.sub(lambda match: match[1].replace("tmp", "_") + ";", text)
        self.kernels: dict[str, Kernel] = {}
        for match in _ENTRY.finditer(text):
            end = _end_of_block(text, match.end())
            kernel = Kernel(match[1], match[2], int(match[3]))
            _parse_body(kernel, text[match.end() : end])
            self.kernels[kernel.name] = kernel

    def find(self, *parts: str) -> Kernel:
        """Return the only kernel whose mangled name holds all of the parts."""
        found = [k for name, k in self.kernels.items() if all(part in name for part in parts)]
        if len(found) != 1:
            raise LookupError(f"{len(found)} kernels match {parts}; there are {[*self.kernels]}")
        return found[0]


def _end_of_block(text: str, start: int) -> int:
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    raise ValueError("a kernel's block does not end")


def _parse_body(kernel: Kernel, body: str) -> None:
    for piece in re.split(r";|(?<=:)\s*\n", body):
        statement = piece.strip()
        if not statement or statement.startswith((".loc", ".pragma")):
            continue
        if register := _REGISTER.match(statement):
            kernel.registers[register[2]] = register[1]
        elif label := re.match(r"(\$?\w+):$", statement):
            kernel.labels[label[1]] = len(kernel.code)
        elif statement.startswith("."):
            raise UnsupportedError(f"{kernel.name}: {statement}")
        else:
            kernel.code.append(_parse_instruction(statement))


def _parse_instruction(statement: str) -> Instruction:
    match = _INSTRUCTION.match(statement)
    if match is None:
        raise UnsupportedError(statement)
    name, *modifiers = match[3].split(".")
    operands = tuple(operand.strip() for operand in _OPERAND.findall(match[4]))
    return Instruction(match[2], match[1] == "!", name, tuple(modifiers), operands)
