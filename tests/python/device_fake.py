"""A device without hardware for the tests of the device backend: torch's PrivateUse1, named "fake".

``fake_device/`` is its C++. Its streams are threads, so that what is put on a stream runs later, as
on a GPU, and a log tells what was asked of the device in which order.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

import agoq_comm
from agoq_comm import _C, _arrays, _encoded, _registration, codec
from ranks import Rank

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BACKEND = "agoq_fake"
FOLDER = ROOT / "build" / f"fake_device-{torch.__version__}"
# Of what compiles it: minutes on a machine that is busy with other things.
LIMIT_SECONDS = 900
# From the machine's pools: see guard.cc.
HIGH_PRIORITY = range(5, 9)


def build() -> None:
    """Compile the device where that has not been done, in a process that may load it."""
    # Where pip puts ninja.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def _compile() -> None:
    from torch.utils import cpp_extension

    package = Path(agoq_comm.__file__).parent
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock.of.tests").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Left by a compilation that was killed, for which torch would wait for ever.
        (FOLDER / "lock").unlink(missing_ok=True)
        cpp_extension.load(
            "_fake_device",
            sorted(str(path) for path in (HERE / "fake_device").glob("*.cc")),
            extra_include_paths=[str(package / "include"), str(ROOT / "csrc")],
            extra_cflags=["-std=c++20", "-O0", "-g0"],
            extra_ldflags=[
                f"-L{package / 'lib'}",
                "-lagoqcomm",
                f"-Wl,-rpath,{package / 'lib'}",
            ],
            build_directory=str(FOLDER),
            is_python_module=False,
        )


def load(me: Rank) -> None:
    """Make the built device known to torch, and the backend for it to torch.distributed."""
    sys.path.insert(0, str(FOLDER))
    importlib.import_module("_fake_device")
    torch.utils.rename_privateuse1_backend("fake")
    # What torch looks for in torch.fake when it first meets the device.
    device_module = types.ModuleType("torch.fake")
    device_module.is_available = lambda: True
    device_module.device_count = lambda: 1
    device_module.current_device = lambda: 0
    device_module._is_in_bad_fork = lambda: False
    device_module._lazy_init = lambda: None
    torch._register_device_module("fake", device_module)
    _registration._make_inner = _make_inner
    _registration._kernels["fake"] = fake.support()
    create = _registration._create
    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", "fake"])
    me.backend = BACKEND


def load_codec() -> None:
    """Let the codec of arrays take the device's memory, which is the host's.

    It computes at once, on what the stream has come to by then, where a device's would be queued.
    """
    _arrays.DEVICE_TYPES.add("fake")

    def kernels(device: torch.device, *arguments: Any) -> Any:
        if device.type == "fake":
            fake.synchronize()
        return of_the_host(device, *arguments)

    of_the_host = _encoded.kernels
    for module in (_encoded, codec):
        module.kernels = kernels


class _Fake:
    """The module, once `load` has loaded it: programs are also read where it is not built."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["_fake_device"], name)


fake = _Fake()


# What tests break on purpose: the inner backend of the group that was made last.
inner: Any = None


def _make_inner(store: Any, rank: int, size: int, options: _C.Options) -> dict[str, Any]:
    """As `agoq_comm` does for CUDA, with the fake device in CUDA's place."""
    global inner

    def gloo(name: str) -> Any:
        return _registration._make_gloo(PrefixStore(name, store), rank, size, options)

    inner = gloo("fake")
    if options.device_transport == "auto":
        inner = fake.Backend(rank, size, inner)
    return {"cpu": gloo("gloo"), "fake": inner}


if __name__ == "__main__":
    _compile()
