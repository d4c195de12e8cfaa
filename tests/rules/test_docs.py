"""The pages agree with the tree: links lead somewhere, settings and files named in them exist."""

from __future__ import annotations

import re

from tree import ROOT, files, relative

_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_VARIABLE = re.compile(r"\bAGOQ_[A-Z0-9_]+\b")
_QUOTED_VARIABLE = re.compile(r'"(AGOQ_[A-Z0-9_]+)"')
_QUOTED_FILE = re.compile(
    r"`((?:libagoqcomm|csrc|python|tests|bench|docs|examples|tools|cmake)/[\w./-]+)`"
)


def test_relative_links_lead_to_files() -> None:
    broken = [
        f"{relative(page)}: {target}"
        for page in files({".md"})
        for target in _LINK.findall(page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_files_named_in_the_pages_exist() -> None:
    missing = [
        f"{relative(page)}: {name}"
        for page in files({".md"})
        if page.name != "CHANGELOG.md"
        for name in _QUOTED_FILE.findall(page.read_text())
        if not (ROOT / name).exists() and not name.startswith("bench/results")
    ]
    assert missing == []


def test_the_table_of_variables_is_that_of_the_code() -> None:
    read_in_code = {
        variable
        for folder in ("libagoqcomm/src", "csrc", "python")
        for path in files({".cc", ".h", ".py"}, ROOT / folder)
        for variable in _QUOTED_VARIABLE.findall(path.read_text())
    }
    table = re.findall(r"^\| `(AGOQ_[A-Z0-9_]+)`", (ROOT / "docs/backend.md").read_text(), re.M)
    assert sorted(table) == sorted(read_in_code)
