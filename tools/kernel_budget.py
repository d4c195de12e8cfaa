#!/usr/bin/env python3
"""What a GPU would show first, read from nvcc's output: checks the kernels against a budget.

For every kernel and architecture: registers, spills, stack and shared memory as ptxas reports
them; no fused, flushing or approximate arithmetic and no local memory in the PTX; 16-byte loads
and stores on the path of whole, aligned vectors. For the kernels that a user waits for also the
instructions an element takes, estimated by running the PTX: there must be fewer than the device
can issue in the time that its memory needs for the element's bytes.

``tools/kernel_budget.json`` holds what each may take. ``--write`` replaces it by what was found.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kernel_arguments as ka
import kernels
import numpy as np
from ptxsim import Machine, Program

BUDGET = Path(__file__).with_name("kernel_budget.json")

# An H200: 132 multiprocessors that issue for 128 lanes a cycle, and the copy bandwidth that was
# measured on one, read and written bytes together.
ISSUED_PER_SECOND = 132 * 128 * 1.98e9
COPIED_BYTES_PER_SECOND = 4.3e12

FORBIDDEN = {
    "fused arithmetic": re.compile(r"\b(?:fma|mad)\.[\w.]*f(?:16|32|64)"),
    "flushing or approximate arithmetic": re.compile(r"\.(?:ftz|approx|full|sat)\b"),
    "arithmetic that does not state its rounding": re.compile(r"\b(?:add|sub|mul|div|sqrt)\.f32"),
    "local memory": re.compile(r"\.local\b"),
    "shared memory": re.compile(r"\.shared\b"),
}
# More instructions than the memory's time allows: codes of few bits leave little time, and rounding
# to floating-point ones takes more.
BOUND_BY_INSTRUCTIONS = {
    *(f"{name} sum of 8, bf16" for name in ("fp4", "e2m3", "int4", "int6")),
    *(f"{name} rows of 8, bf16" for name in ("fp4", "e2m3", "int4", "int6")),
    *(f"{name} encode bf16" for name in ("fp4", "e2m3")),
}
ELEMENTS = 8192
WIDTH = 1024
SCALE_BYTES = 2 / 128
RANKS = 8


def short_name(mangled: str) -> str:
    """``encode_kernel<Int8, 1, 1, 0>`` from the mangled name of such an instance."""
    match = re.match(r"_ZN4agoq4cuda\d+([a-z_]+)I(.*?)EEvNS", mangled)
    if match is None:
        raise ValueError(f"{mangled} is no kernel of ours")
    arguments = re.sub(r"NS_\d([A-Z][a-z]*\d(?:[a-z]\d)?)E", r"\1 ", match[2])
    arguments = re.sub(r"LNS_\d+DataTypeE(\d+)E", r"\1 ", arguments)
    arguments = re.sub(r"L[ib](\d+)E", r"\1 ", arguments)
    return f"{match[1]}<{', '.join(arguments.split())}>"


def issue_slots(kind: str) -> int:
    """What a PTX instruction costs, in full-rate instructions of the device, about.

    Moves and conversions between integers become parts of other instructions, as a rule. A
    conversion between an integer and a float runs at half rate. A division is a short program,
    and so is a root.
    """
    name, *modifiers = kind.split(".")
    if name in ("mov", "cvta"):
        return 0
    if name == "cvt":
        return 0 if not any(modifier[0] in "fb" for modifier in modifiers) else 2
    return 10 if name in ("div", "sqrt") else 1


def entry_text(text: str, name: str) -> str:
    """Return the PTX of one kernel."""
    start = text.index(f".entry {name}(")
    end = text.find(".entry", start + 1)
    return text[start : end if end >= 0 else len(text)]


def static_facts(architecture: str) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Return each kernel's facts, and what no kernel may do but one does."""
    facts, findings = {}, []
    for format_name in kernels.FORMATS:
        text = re.sub(r"//[^\n]*", "", kernels.ptx(format_name, architecture))
        for name, needs in kernels.resources(format_name, architecture).items():
            body, short = entry_text(text, name), short_name(name)
            for what, pattern in FORBIDDEN.items():
                if match := pattern.search(body):
                    findings.append(f"sm_{architecture} {short}: {what} ({match[0]})")
            facts[short] = needs | {
                "loads_of_16_bytes": len(re.findall(r"ld\.global[\w.]*\.v4\.\w32", body)),
                "stores_of_16_bytes": len(re.findall(r"st\.global[\w.]*\.v4\.\w32", body)),
            }
    return facts, findings


class Meter:
    """Runs one format's kernels on whole, aligned blocks and counts instructions an element."""

    def __init__(self, format_name: str, architecture: str) -> None:
        self.program = Program(kernels.ptx(format_name, architecture))
        self.shape = ka.Shape(128, "bf16")
        self.random = np.random.default_rng(1)
        self.code_bytes = ELEMENTS * ka.BITS[format_name] // 8
        self.encoded = np.full(self.code_bytes + int(ELEMENTS * SCALE_BYTES), 1, np.uint8)

    @property
    def bytes(self) -> float:
        """Encoded bytes an element."""
        return self.encoded.size / ELEMENTS

    def run(self, names: tuple[str, ...], make_arguments: Any) -> float:
        """Count one kernel; `make_arguments` gets the machine to put its buffers in."""
        machine = Machine(self.program)
        arguments = make_arguments(machine)
        grid = (self.shape.thread_blocks(ELEMENTS), 1)
        counts = machine.launch(machine.program.find(*names), grid, ka.THREADS, arguments)
        return sum(count * issue_slots(kind) for kind, count in counts.items()) / ELEMENTS

    def encode(self, type_name: str) -> float:
        """Elements of a type to encoded bytes."""
        x = self.random.standard_normal(ELEMENTS).astype(np.float32).view(np.uint32)
        source = x if type_name == "float32" else (x >> 16).astype(np.uint16)

        def arguments(machine: Machine) -> bytes:
            places = machine.add(source).base, machine.add(self.encoded).base
            segment = (*places, ELEMENTS, self.code_bytes, 0)
            return ka.encode_arguments(self.shape, type_name, [segment])

        return self.run(("encode_kernel", f"DataTypeE{ka.TYPES[type_name]}ELi1ELb0E"), arguments)

    def decode(self, type_name: str) -> float:
        """Encoded bytes to elements of a type."""
        target = np.zeros(ELEMENTS, np.uint32 if type_name == "float32" else np.uint16)

        def arguments(machine: Machine) -> bytes:
            places = machine.add(self.encoded).base, machine.add(target).base
            return ka.decode_arguments(self.shape, [(*places, ELEMENTS, self.code_bytes)])

        return self.run(("decode_kernel", f"DataTypeE{ka.TYPES[type_name]}E"), arguments)

    def accumulate(self) -> float:
        """Encoded bytes added to fp32."""

        def arguments(machine: Machine) -> bytes:
            target = np.zeros(ELEMENTS, np.float32)
            places = machine.add(self.encoded).base, machine.add(target).base
            return ka.decode_arguments(self.shape, [(*places, ELEMENTS, self.code_bytes)])

        return self.run(("accumulate_kernel",), arguments)

    def sum(self, ranks: int) -> float:
        """Encoded pieces and the owner's bf16 piece to an encoded sum and bf16."""

        def arguments(machine: Machine) -> bytes:
            own = machine.add(np.zeros(ELEMENTS, np.uint16)).base
            pieces = [machine.add(self.encoded).base for _ in range(1, ranks)]
            encoded = machine.add(self.encoded).base
            values = machine.add(np.zeros(ELEMENTS, np.uint16)).base
            segment = ka.SumSegment(
                ELEMENTS, self.code_bytes, pieces, own=own, encoded=encoded, values=values
            )
            common = ka.Sum(len(pieces), 0, "bfloat16", "bfloat16", "bfloat16", 1 / ranks)
            return ka.sum_arguments(self.shape, common, [segment])

        return self.run(("sum_encode_kernel", "ELi1ELb0E"), arguments)

    def rows(self, ranks: int) -> float:
        """The same pieces, a residual and a norm to bf16 before and after it, and encoded rows."""

        def arguments(machine: Machine) -> bytes:
            narrow = [machine.add(np.zeros(ELEMENTS, np.uint16)).base for _ in range(4)]
            call = ka.Rows(
                *(ELEMENTS // WIDTH, WIDTH),
                *(self.code_bytes * WIDTH // ELEMENTS, int(WIDTH * SCALE_BYTES), self.code_bytes),
                pieces=[machine.add(self.encoded).base for _ in range(1, ranks)],
                own_rank=0,
                type="bfloat16",
                factor=1 / ranks,
                epsilon=1e-5,
                has_norm=True,
                own=narrow[0],
                residual=narrow[1],
                values=narrow[2],
                weight=machine.add(np.zeros(WIDTH, np.float32)).base,
                normed=narrow[3],
                encoded=machine.add(self.encoded).base,
            )
            return ka.row_arguments(self.shape, call)

        return self.run(("row_kernel", "ELi1E"), arguments)


def instruction_facts(format_name: str, architecture: str) -> dict[str, dict[str, float]]:
    """Instructions an element, and how many the memory's time allows."""
    meter = Meter(format_name, architecture)
    code = meter.bytes
    measured = {
        "encode bf16": (meter.encode("bfloat16"), 2 + code),
        "encode fp32": (meter.encode("float32"), 4 + code),
        "decode bf16": (meter.decode("bfloat16"), 2 + code),
        "decode fp32": (meter.decode("float32"), 4 + code),
        "decode_accumulate": (meter.accumulate(), 8 + code),
        f"sum of {RANKS}, bf16": (meter.sum(RANKS), 2 + (RANKS - 1) * code + code + 2),
        # The second look at a row, and the weight, are in cache.
        f"rows of {RANKS}, bf16": (meter.rows(RANKS), 2 + (RANKS - 1) * code + 2 + 2 + 2 + code),
    }
    return {
        f"{format_name} {name}": {
            "instructions": round(count, 2),
            "allowed": round(size / COPIED_BYTES_PER_SECOND * ISSUED_PER_SECOND, 2),
        }
        for name, (count, size) in measured.items()
    }


# Of these more is worse; of the others less is.
_COSTS = {"registers", "stack", "spills", "shared", "instructions"}


def compare(found: dict[str, Any], budget: dict[str, Any]) -> list[str]:
    """What is worse than the budget says."""
    findings = [f"{key}: not in the budget; see --write" for key in found if key not in budget]
    findings += [
        f"{key}: in the budget, but there is no such kernel" for key in budget.keys() - found.keys()
    ]
    for key in found.keys() & budget.keys():
        for fact, allowed in budget[key].items():
            value = found[key].get(fact)
            if value is None or (value > allowed if fact in _COSTS else value < allowed):
                findings.append(f"{key}: {fact} is {value}, the budget {allowed}")
    return findings


def main() -> int:
    """Print the facts; 0 where all is within the budget, or where there is no nvcc."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the budget")
    options = parser.parse_args()
    if kernels.nvcc() is None:
        print("kernel_budget: skipped, there is no nvcc here to compile the CUDA kernels")
        return 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = [(f, a) for f in kernels.FORMATS for a in kernels.ARCHITECTURES]
        list(pool.map(lambda task: kernels.resources(*task), tasks))  # compiles side by side
    found: dict[str, Any] = {}
    findings: list[str] = []
    for architecture in kernels.ARCHITECTURES:
        facts, forbidden = static_facts(architecture)
        findings += forbidden
        found |= {f"sm_{architecture} {name}": fact for name, fact in facts.items()}
    for format_name in kernels.FORMATS:
        for name, fact in instruction_facts(format_name, "90").items():
            found[f"sm_90 {name}"] = fact
            print(f"{name:24s} {fact['instructions']:6.2f} instructions of {fact['allowed']:6.2f}")
            if (fact["instructions"] > fact["allowed"]) != (name in BOUND_BY_INSTRUCTIONS):
                findings.append(f"{name}: BOUND_BY_INSTRUCTIONS says otherwise")
    if any(fact.get("spills") or fact.get("stack") for fact in found.values()):
        findings.append("a kernel spills registers or needs a stack")
    if options.write:
        BUDGET.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    findings += compare(found, json.loads(BUDGET.read_text()))
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"kernel_budget: {len(found)} kernels, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
