"""Two encodings of one call and rank draw apart only if they state different stages."""

from __future__ import annotations

import re

from tree import ROOT, SOURCES

_OF_PYTHON = ("gradients/quantized_gradients.py", "sequence_parallel/rounding.py")


def test_no_two_stages_of_stochastic_rounding_are_the_same() -> None:
    header = (SOURCES / "collective" / "rounding_stage.h").read_text()
    stages = re.findall(r"\bk\w+Stage = (\d+);", header)
    assert len(stages) == header.count("inline constexpr")
    package = ROOT / "python" / "agoq_comm"
    found = {
        path.relative_to(package).as_posix(): re.findall(r"^_STAGE = (\d+)$", text, re.MULTILINE)
        for path in package.rglob("*.py")
        if "stage=" in (text := path.read_text())
    }
    assert sorted(found) == sorted(_OF_PYTHON)
    stages += [stage for values in found.values() for stage in values]
    assert len(stages) == len(set(stages)) >= 3 + len(_OF_PYTHON)
