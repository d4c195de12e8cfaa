"""Who may know whom: format <- codec <- collective -> transport; all else sees public headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tree import CORE, CPP_SUFFIXES, PUBLIC, ROOT, SOURCES, files, includes, relative

# Public headers that speak of formats, and those that speak of moving bytes.
FORMATS = {
    "block_format.h",
    "wire_layout.h",
    "codec.h",
    "row_codec.h",
    "cuda_codec.h",
    "cuda_row_codec.h",
    "device_codec.h",
    "device_row_codec.h",
}
HOST_BYTES = {
    "transport.h",
    "inproc.h",
    "tcp.h",
    "shm.h",
    "auto.h",
    "mpi.h",
    "store.h",
    "transport_config.h",
}
DEVICE_BYTES = {"device_transport.h", "device_inproc.h", "device_staging.h", "nccl.h"}
BYTES = HOST_BYTES | DEVICE_BYTES
COMPOSED = {"communicator.h", "device_communicator.h", "stats.h", "options.h"}

# layer: (folders of src/ it may include, public headers it may not)
LAYERS = {
    "format": ({"format"}, BYTES | COMPOSED | {"codec.h"}),
    "codec": ({"codec", "format"}, BYTES | COMPOSED),
    "collective": (
        {"collective", "codec"},
        {"communicator.h", "device_communicator.h", "inproc.h", "device_inproc.h", "nccl.h"},
    ),
    "transport": ({"transport"}, FORMATS | COMPOSED),
}
# Folders of src/transport that are no transport but what several of them are made of.
SHARED_BY_TRANSPORTS = {"mesh", "store", "device"}
# This one is made of others by its nature.
COMPOSED_TRANSPORTS = {"auto": {"tcp", "shm"}}
COMMUNICATORS = ("communicator", "device_communicator")
FOREIGN = ("torch", "ATen", "c10", "Python.h", "pybind11", "mpi.h", "nccl.h", "cuda")
# The only folders that include a foreign library: each its own, and nobody else.
ADAPTERS = ("libagoqcomm/src/transport/", "libagoqcomm/src/codec/cuda/")


def layer_of(path: Path) -> str:
    """Return the folder of src/ that a file lives in, or "" for the files that compose them."""
    parts = path.relative_to(SOURCES).parts
    return parts[0] if len(parts) > 1 else ""


def public_name(include: str) -> str | None:
    """Return the file name of a public header, or None for any other include."""
    return include.removeprefix("agoqcomm/") if include.startswith("agoqcomm/") else None


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_includes_only_what_it_may_know(layer: str) -> None:
    allowed, forbidden = LAYERS[layer]
    sources = list(files(CPP_SUFFIXES, SOURCES / layer))
    assert sources
    for path in sources:
        for include in includes(path):
            folder = include.split("/")[0]
            where = f"{relative(path)} includes {include}"
            assert folder not in set(LAYERS) - allowed, where
            assert public_name(include) not in forbidden, where


def test_transports_do_not_know_each_other() -> None:
    for path in files(CPP_SUFFIXES, SOURCES / "transport"):
        own = path.relative_to(SOURCES / "transport").parts[0]
        allowed = {own} | SHARED_BY_TRANSPORTS | COMPOSED_TRANSPORTS.get(own, set())
        for include in includes(path):
            parts = include.split("/")
            if parts[0] == "transport" and len(parts) > 2:
                assert parts[1] in allowed, f"{relative(path)} includes {include}"


def test_only_the_communicator_composes_collectives_and_transports() -> None:
    for path in files(CPP_SUFFIXES, SOURCES):
        if layer_of(path) == "" and not path.name.startswith(COMMUNICATORS):
            folders = {include.split("/")[0] for include in includes(path)}
            assert not folders & {"collective", "transport"}, relative(path)


def test_everything_outside_the_core_sees_public_headers_only() -> None:
    inner = {include.relative_to(SOURCES).as_posix() for include in files(CPP_SUFFIXES, SOURCES)}
    outside = [ROOT / "csrc", ROOT / "bench", ROOT / "tests" / "consumer"]
    for path in (path for folder in outside for path in files(CPP_SUFFIXES, folder)):
        for include in includes(path):
            assert include not in inner, f"{relative(path)} includes {include}"
            assert "libagoqcomm" not in include, f"{relative(path)} includes {include}"
            assert "/src/" not in include, f"{relative(path)} includes {include}"


def test_the_core_knows_no_torch_python_mpi_or_nccl() -> None:
    for path in files(CPP_SUFFIXES, CORE):
        if relative(path).startswith(ADAPTERS):
            continue
        for include in includes(path):
            assert not include.startswith(FOREIGN), f"{relative(path)} includes {include}"


def test_public_headers_include_only_each_other_and_the_standard_library() -> None:
    for path in files({".h"}, PUBLIC):
        for include in includes(path):
            name = public_name(include)
            if name is None:
                assert "/" not in include and "." not in include, f"{path.name} includes {include}"
            else:
                assert (PUBLIC / name).exists(), f"{path.name} includes {include}"


@pytest.mark.parametrize("header", [path.name for path in files({".h"}, PUBLIC)])
def test_a_public_header_compiles_alone(header: str) -> None:
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    # Included twice, so that a missing #pragma once is seen as well.
    text = f'#include "agoqcomm/{header}"\n' * 2
    done = subprocess.run(
        [*command, f"-I{PUBLIC.parent}", "-x", "c++", "-"],
        input=text,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
