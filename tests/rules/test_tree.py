"""Rules that hold for the text of every file."""

from __future__ import annotations

import re

import pytest

from tree import CODE_SUFFIXES, CPP_SUFFIXES, PUBLIC, ROOT, TEXT_SUFFIXES, code_of, files, relative

MAX_LINES = 400


def test_no_file_is_too_long_to_hold_one_concept() -> None:
    lines = {relative(path): path.read_text().count("\n") for path in files(CODE_SUFFIXES)}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_headers_are_guarded_by_pragma_once() -> None:
    assert [
        relative(path)
        for path in files({".h", ".cuh"})
        if "\n#pragma once\n" not in "\n" + path.read_text()
    ] == []


def test_the_version_is_stated_once() -> None:
    stated = re.search(r'VERSION_STRING "([^"]+)"', (PUBLIC / "version.h").read_text())
    assert stated
    # The change log tells history, the lists of others' versions tell theirs.
    elsewhere = {"libagoqcomm/include/agoqcomm/version.h", "CHANGELOG.md", "requirements-dev.txt"}
    number = re.compile(rf"(?<![\d.]){re.escape(stated.group(1))}(?![\d.])")
    assert [
        relative(path)
        for path in files(TEXT_SUFFIXES)
        if relative(path) not in elsewhere
        # Recorded figures say which version they are of.
        and "results" not in path.parts
        and number.search(path.read_text())
    ] == []


def test_no_path_of_one_machine() -> None:
    path_of_machine = re.compile(r"(?<![\w.])/(?:home|root|work|Users|mnt)/\w")
    assert [
        f"{relative(path)}: {line.strip()}"
        for path in files(TEXT_SUFFIXES)
        for line in path.read_text().splitlines()
        if path_of_machine.search(line)
    ] == []


@pytest.mark.parametrize("folder", ["libagoqcomm/src", "csrc"])
def test_library_sources_neither_print_nor_end_the_process(folder: str) -> None:
    forbidden = re.compile(
        r"\bstd::(?:cout|cerr|clog|abort|exit|quick_exit|terminate|puts|printf|fprintf|print)\b"
        r"|(?<![\w:.>])(?:printf|fprintf|puts|fputs|perror|exit|_exit|assert)\s*\("
        r"|\b(?:stdout|stderr)\b"
    )
    assert [
        f"{relative(path)}: {line.strip()}"
        for path in files(CPP_SUFFIXES, ROOT / folder)
        for line in code_of(path).splitlines()
        if forbidden.search(line)
    ] == []


def test_nothing_is_left_for_later() -> None:
    # Written in two pieces, so that this file passes its own rule.
    later = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
    assert [
        f"{relative(path)}: {line.strip()}"
        for path in files(CODE_SUFFIXES)
        for line in path.read_text().splitlines()
        if later.search(line)
    ] == []
