"""The CUDA kernels as nvcc compiles them, for the tools that look at its output.

Everything is compiled with the flags of the CMake build, once for each change of a source, into
``build/kernels``.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "libagoqcomm"
SOURCES = CORE / "src/codec/cuda"
OUTPUT = ROOT / "build/kernels"

ARCHITECTURES = ("80", "90", "100")
FORMATS = ("int8", "fp4", "e2m3", "int4", "int6")
FLAGS = ("-std=c++20", "-O3", "--fmad=false", "-Xcompiler=-ffp-contract=off")


@functools.cache
def nvcc() -> str | None:
    """Return nvcc where CMake would find it, or None."""
    candidates = [os.environ.get("CUDACXX"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    return next((path for path in candidates if path and Path(path).exists()), None)


def _newest_source() -> float:
    folders = (SOURCES, CORE / "src/format", CORE / "include/agoqcomm")
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return max(path.stat().st_mtime for path in [*files, Path(__file__)])


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def _make(target: Path, *command: str) -> str:
    """Run a command that makes `target`, unless it is up to date; return what it printed."""
    log = target.with_suffix(target.suffix + ".log")
    if log.exists() and log.stat().st_mtime > _newest_source():
        return log.read_text()
    target.parent.mkdir(parents=True, exist_ok=True)
    printed = _run(*command, "-o", str(target))
    log.write_text(printed)
    return printed


def ptx(format_name: str, architecture: str) -> str:
    """Return the PTX of a format's kernels.

    Parameters
    ----------
    format_name : str
        One of `FORMATS`.
    architecture : str
        One of `ARCHITECTURES`.
    """
    compiler = nvcc()
    if compiler is None:
        raise RuntimeError("there is no nvcc here")
    target = OUTPUT / f"sm_{architecture}" / f"{format_name}.ptx"
    include = ("-I", str(CORE / "include"), "-I", str(CORE / "src"))
    arch = f"-arch=compute_{architecture}"
    _make(target, compiler, *FLAGS, *include, arch, "-ptx", str(SOURCES / f"{format_name}.cu"))
    return target.read_text()


def resources(format_name: str, architecture: str) -> dict[str, dict[str, int]]:
    """Return what ptxas says that each kernel needs: registers, spills, stack and shared memory."""
    ptx(format_name, architecture)
    source = OUTPUT / f"sm_{architecture}" / f"{format_name}.ptx"
    ptxas = str(Path(nvcc() or "").resolve().with_name("ptxas"))
    if not Path(ptxas).exists():
        ptxas = "ptxas"
    printed = _make(
        source.with_suffix(".cubin"), ptxas, "-v", "-O3", f"-arch=sm_{architecture}", str(source)
    )
    found = {}
    for part in printed.split("Compiling entry function '")[1:]:
        frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", part)
        registers = re.search(r"Used (\d+) registers", part)
        shared = re.search(r"(\d+) bytes smem", part)
        if frame is None or registers is None:
            raise RuntimeError(f"ptxas has changed its report:\n{part}")
        found[part.split("'")[0]] = {
            "registers": int(registers[1]),
            "stack": int(frame[1]),
            "spills": int(frame[2]),
            "shared": int(shared[1]) if shared else 0,
        }
    return found
