"""agoq_comm.Options: defaults, validation, copies, environment; and how the backend is found."""

from __future__ import annotations

import copy
import importlib.metadata
import os
import pickle
import subprocess
import sys

import pytest

import agoq_comm
from ranks import Rank, launch, values

DEFAULTS = {
    "format": "int8",
    "block": 128,
    "scale": "bf16",
    "rounding": "nearest",
    "seed": 0,
    "min_numel": 16384,
    "quantize": ("all_reduce", "reduce_scatter"),
    "algorithm": "auto",
    "segment_numel": 61440,
    "codec_threads": 0,
    "transport": "auto",
    "device_transport": "auto",
}
OTHERS = {
    "block": 512,
    "scale": "fp32",
    "rounding": "stochastic",
    "seed": 2**63,
    "min_numel": 0,
    "quantize": ("all_gather",),
    "algorithm": "two_level",
    "segment_numel": 1,
    "codec_threads": 3,
    "transport": "gloo",
    "device_transport": "host",
}
WRONG = {
    "format": "int3",
    "block": 100,
    "scale": "fp8",
    "rounding": "up",
    "min_numel": -1,
    "quantize": ("broadcast",),
    "algorithm": "ring",
    "segment_numel": 0,
    "codec_threads": -1,
    "transport": "pigeon",
    "device_transport": "pigeon",
}


def _field(options: agoq_comm.Options, name: str):
    value = getattr(options, name)
    return tuple(value) if name == "quantize" else value


def test_defaults_are_those_of_the_documentation():
    options = agoq_comm.Options()
    assert {name: _field(options, name) for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("name", OTHERS)
def test_every_field_can_be_given(name):
    options = agoq_comm.Options(**{name: OTHERS[name]})
    assert _field(options, name) == OTHERS[name]
    assert options != agoq_comm.Options()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_with_a_sentence_that_names_the_field(name):
    with pytest.raises(ValueError, match=name) as caught:
        agoq_comm.Options(**{name: WRONG[name]})
    assert len(str(caught.value).splitlines()[0].split()) > 5, caught.value


def test_an_unknown_field_is_refused():
    with pytest.raises(TypeError):
        agoq_comm.Options(blok=64)


@pytest.mark.parametrize("name", OTHERS)
def test_copies_and_pickles_keep_every_field(name):
    options = agoq_comm.Options(**{name: OTHERS[name]})
    for other in (copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert other == options and other is not options


@pytest.mark.parametrize("name", OTHERS)
def test_fields_can_be_set(name):
    options = agoq_comm.Options()
    setattr(options, name, OTHERS[name])
    assert options == agoq_comm.Options(**{name: OTHERS[name]})


@pytest.mark.parametrize("name", WRONG)
def test_setting_a_wrong_value_changes_nothing(name):
    options = agoq_comm.Options()
    with pytest.raises(ValueError, match=name):
        setattr(options, name, WRONG[name])
    assert options == agoq_comm.Options()


def test_a_copy_is_independent():
    options = agoq_comm.Options()
    other = copy.deepcopy(options)
    other.block = 64
    assert options.block == 128


def test_repr_reads_back():
    options = agoq_comm.Options(**OTHERS)
    assert eval(repr(options), {"Options": agoq_comm.Options}) == options


def _in_new_process(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_environment_sets_defaults():
    code = (
        "import agoq_comm; o = agoq_comm.Options();"
        "print(o.block, o.scale, o.rounding, o.seed, o.min_numel, *o.quantize);"
        "print(o.algorithm, o.segment_numel, o.codec_threads, o.transport);"
        "print(agoq_comm.Options(block=64).block)"
    )
    done = _in_new_process(
        code,
        AGOQ_BLOCK="256",
        AGOQ_SCALE="fp32",
        AGOQ_ROUNDING="stochastic",
        AGOQ_SEED="12345678901234567890",
        AGOQ_MIN_NUMEL="77",
        AGOQ_QUANTIZE="all_reduce,all_gather",
        AGOQ_ALGORITHM="flat",
        AGOQ_SEGMENT_NUMEL="4321",
        AGOQ_CODEC_THREADS="2",
        AGOQ_TRANSPORT="gloo",
    )
    assert done.stdout.splitlines() == [
        "256 fp32 stochastic 12345678901234567890 77 all_reduce all_gather",
        "flat 4321 2 gloo",
        "64",
    ], done


@pytest.mark.parametrize(
    "name,value",
    [
        ("AGOQ_BLOCK", "99"),
        ("AGOQ_BLOCK", "many"),
        ("AGOQ_SCALE", "fp8"),
        ("AGOQ_FORMAT", "int3"),  # The default is the only format: a refusal shows it was read.
    ],
)
def test_a_wrong_variable_is_named(name, value):
    done = _in_new_process("import agoq_comm; agoq_comm.Options()", **{name: value})
    assert done.returncode != 0
    assert name in done.stderr.strip().splitlines()[-1], done.stderr


def test_an_isa_can_be_forced():
    code = "import agoq_comm; print(agoq_comm.inproc_group(1)[0].describe())"
    assert "scalar" in _in_new_process(code, AGOQ_CPU_ISA="scalar").stdout
    done = _in_new_process(code, AGOQ_CPU_ISA="sse9")
    assert done.returncode != 0 and "avx2" in done.stderr


def test_importing_prints_nothing_and_starts_no_thread():
    code = "import agoq_comm, os; print(len(os.listdir('/proc/self/task')))"
    plain = _in_new_process("import torch, os; print(len(os.listdir('/proc/self/task')))")
    done = _in_new_process(code)
    assert done.stderr == "" and done.stdout == plain.stdout, done


def test_the_entry_point_is_of_torch_distributed():
    points = importlib.metadata.distribution("agoq_comm").entry_points
    (point,) = points.select(group="torch.distributed.backends")
    assert point.name == "agoq"
    point.load()
    assert not points.select(group="torch.backends"), "a failed load would break import torch"


def init_by_import_alone(me: Rank) -> str:
    import torch.distributed as dist

    me.init_process_group()
    name = dist.get_backend()
    dist.destroy_process_group()
    return name


@pytest.mark.parametrize("size", [1, 2, 4])
def test_worlds_of_other_sizes_start(size):
    assert values(launch(init_by_import_alone, size)) == ["agoq"] * size


def test_the_version_is_stated_once():
    assert importlib.metadata.version("agoq_comm") == agoq_comm.__version__


def test_stats_of_a_group_of_another_backend_get_a_sentence():
    assert values(launch(stats_of_gloo, 1)) == [True]


def stats_of_gloo(me: Rank) -> bool:
    import torch.distributed as dist

    me.backend = "gloo"
    me.init_process_group()
    for function in (agoq_comm.stats, agoq_comm.describe):
        with pytest.raises((ValueError, TypeError, RuntimeError), match="agoq"):
            function()
    dist.destroy_process_group()
    return True
