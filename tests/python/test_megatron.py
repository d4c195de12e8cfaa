"""programs/megatron_mappings.py on two and four ranks, against the installed megatron-core."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from agoq_comm.sequence_parallel import patch_megatron
from checks import ENDS, expect_ok

INSTALLED = importlib.util.find_spec("megatron") is not None

pytestmark = pytest.mark.skipif(not INSTALLED, reason="megatron-core is not installed")

# Named here, since the program itself imports Megatron.
NAMES = (
    "patched_results_are_within_the_bound_of_megatrons",
    "patched_and_exact_is_megatrons_own_result",
    "the_patch_reaches_every_module_and_is_undone",
    "other_groups_keep_megatrons_functions",
    "megatrons_linear_layers_are_served",
    ENDS,
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [2, 4])
def test_megatron(size: int, name: str) -> None:
    expect_ok("programs.megatron_mappings", size, name, timeout=200)


def test_every_check_is_named_here() -> None:
    source = (Path(__file__).parent / "programs/megatron_mappings.py").read_text()
    assert source.count("@checks\n") == len(NAMES) - 1


def test_without_megatron_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "megatron", None)
    for name in [n for n in sys.modules if n.startswith("megatron.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="megatron"):
        patch_megatron()
