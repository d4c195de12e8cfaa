#!/usr/bin/env python3
"""Puts what a command has printed into a page, between two comments that name the place.

Usage: ``tools/fill_page.py PAGE SECTION <TEXT``. PAGE has the lines ``<!-- SECTION: begin -->`` and
``<!-- SECTION: end -->``.
"""

from __future__ import annotations

import sys
from pathlib import Path


def fill(page: str, section: str, text: str) -> str:
    """Return the page with `text` in the section; raises ValueError where it has none."""
    begin, end = f"<!-- {section}: begin -->\n", f"<!-- {section}: end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no section {section!r}: {begin.strip()} ... {end}")
    return f"{before}{begin}\n{text.strip()}\n\n{end}{after}"


def main() -> int:
    """Fill the section that the command line names from standard input."""
    path, section = Path(sys.argv[1]), sys.argv[2]
    try:
        path.write_text(fill(path.read_text(), section, sys.stdin.read()))
    except ValueError as error:
        print(f"fill_page: {path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
