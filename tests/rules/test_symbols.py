"""What the built library exports and what it asks of others, by nm."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

# A process belongs to its owner: a library neither ends it nor writes to its standard streams.
FORBIDDEN = {
    "abort",
    "exit",
    "_exit",
    "quick_exit",
    "printf",
    "puts",
    "putchar",
    "perror",
    "stdout",
    "stderr",
    "std::cout",
    "std::cerr",
    "std::clog",
    "__assert_fail",
}
# "typeinfo for", "vtable for" and the like stand before a name; a template's result type as well.
OURS = re.compile(r"\bagoq::")
# Instances of standard templates are weak, and visible because libstdc++ declares them so.
STANDARD = re.compile(r"\b(std|__gnu_cxx)::")


@pytest.fixture(scope="module")
def library() -> Path:
    """Return the built libagoqcomm.so that `make test-rules` names."""
    tree = os.environ.get("AGOQ_BUILD_TREE")
    if tree is None:
        pytest.skip("AGOQ_BUILD_TREE names no build tree; `make test-rules` sets it")
    found = sorted(Path(tree).rglob("libagoqcomm.so"))
    assert found, f"no libagoqcomm.so below {tree}"
    return found[0]


def symbols(library: Path, which: str) -> list[tuple[str, str]]:
    """Return (kind, demangled name) of each defined or undefined dynamic symbol."""
    command = ["nm", "--dynamic", "--demangle", "--format=posix", which, str(library)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=60, check=True)
    rows = []
    for line in done.stdout.splitlines():
        name, kind = re.match(r"(.*?) ([A-Za-z])(?: |$)", line).groups()  # type: ignore[union-attr]
        rows.append((kind, name.split("@")[0]))
    assert rows
    return rows


def test_exports_are_ours(library: Path) -> None:
    foreign = [
        f"{kind} {name}"
        for kind, name in symbols(library, "--defined-only")
        if not OURS.search(name) and not (kind in "WVu" and STANDARD.search(name))
    ]
    assert foreign == []


def test_the_library_never_prints_or_ends_the_process(library: Path) -> None:
    asked = {name for _, name in symbols(library, "--undefined-only")}
    assert asked & FORBIDDEN == set()
