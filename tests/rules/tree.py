"""The files of this repository, as the rules see them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "libagoqcomm"
SOURCES = CORE / "src"
PUBLIC = CORE / "include" / "agoqcomm"

CPP_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".def"}
CODE_SUFFIXES = CPP_SUFFIXES | {".py", ".pyi"}
TEXT_SUFFIXES = CODE_SUFFIXES | {".md", ".toml", ".txt", ".cmake", ".in", ".sh", ".json", ""}

# What make, the tools and git leave behind; .gitignore names the same.
_NOT_OURS = {
    ".git",
    ".venv",
    "build",
    "dist",
    "demo-output",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".benchmarks",
}


def files(suffixes: set[str], under: Path = ROOT) -> Iterator[Path]:
    """Yield the repository's files below `under` with one of the suffixes, in a fixed order."""
    for path in sorted(under.iterdir()):
        if path.name in _NOT_OURS:
            continue
        if path.is_dir():
            yield from files(suffixes, path)
        elif path.suffix in suffixes:
            yield path


def relative(path: Path) -> str:
    """Return the name of a file as the messages of the rules state it."""
    return path.relative_to(ROOT).as_posix()


_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')


def includes(path: Path) -> list[str]:
    """Return what a C++ file includes, without the quotes or brackets."""
    return [match.group(2) for match in _INCLUDE.finditer(path.read_text())]


def code_of(path: Path) -> str:
    """Return the text of a C++ file without its comments and strings, line breaks kept."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match.group().count("\n")

    return _COMMENT.sub(blank, _STRING.sub('""', path.read_text()))
