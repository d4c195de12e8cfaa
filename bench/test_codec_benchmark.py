"""Speed of the codec from Python, on one core, beside torch operations, bitsandbytes and memcpy.

Usage::

    pytest bench/test_codec_benchmark.py --benchmark-json codec.json
    pytest bench/test_codec_benchmark.py -k "decode and 16-MiB"

All move the same fp32 numbers; GB_per_s among the extra columns of the JSON counts those. Rows of
one group do the same work, in 8 bits but where a name says another format: blocks of 128 with a
scale each (bitsandbytes: its own 8-bit code, which is not linear, in blocks of 256). Memcpy, and
the fp32 addition, move the same numbers unencoded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

import agoq_comm

_BLOCK = 128
_MIB = 2**20
SIZES = {"64-KiB": 64 * 1024, "1-MiB": _MIB, "16-MiB": 16 * _MIB, "64-MiB": 64 * _MIB}
# Relative L2 error that a format may cost on normally distributed numbers; the others have 8 bits.
_ERROR_BOUNDS = {"agoq-fp4": 0.12, "agoq-int4": 0.12, "agoq-e2m3": 0.03, "agoq-int6": 0.03}
_ERROR_BOUND = 0.02

Work = Callable[[], torch.Tensor]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The codec uses the caller's thread; the others may use no more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _torch_encode(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    blocks = x.view(-1, _BLOCK)
    scales = blocks.abs().amax(1, keepdim=True) / 127
    return (blocks / scales).round_().to(torch.int8), scales


def _torch_decode(codes: torch.Tensor, scales: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    torch.mul(codes, scales, out=out.view(-1, _BLOCK))
    return out


def _bitsandbytes() -> Any:
    return pytest.importorskip(
        "bitsandbytes.functional", reason="bitsandbytes is not installed: pip install bitsandbytes"
    )


# Each returns the work that is timed, and a check that gives the numbers it stands for.


def _encode_agoq(x: torch.Tensor, format: str = "int8") -> tuple[Work, Work]:
    def encode() -> agoq_comm.Encoded:
        return agoq_comm.encode(x, format=format)

    return lambda: encode().data, lambda: agoq_comm.decode(encode())


def _encode_torch(x: torch.Tensor) -> tuple[Work, Work]:
    out = torch.empty_like(x)
    return lambda: _torch_encode(x)[0], lambda: _torch_decode(*_torch_encode(x), out)


def _encode_bitsandbytes(x: torch.Tensor) -> tuple[Work, Work]:
    bnb = _bitsandbytes()

    def encode() -> tuple[torch.Tensor, object]:
        return bnb.quantize_blockwise(x, blocksize=256)

    return lambda: encode()[0], lambda: bnb.dequantize_blockwise(*encode())


def _memcpy(x: torch.Tensor) -> tuple[Work, Work]:
    out = torch.empty_like(x)
    return lambda: out.copy_(x), lambda: out


def _decode_agoq(x: torch.Tensor, format: str = "int8") -> tuple[Work, Work]:
    encoded, out = agoq_comm.encode(x, format=format), torch.empty_like(x)
    return lambda: agoq_comm.decode(encoded, out=out), lambda: out


def _decode_torch(x: torch.Tensor) -> tuple[Work, Work]:
    (codes, scales), out = _torch_encode(x), torch.empty_like(x)
    return lambda: _torch_decode(codes, scales, out), lambda: out


def _decode_bitsandbytes(x: torch.Tensor) -> tuple[Work, Work]:
    bnb = _bitsandbytes()
    encoded = bnb.quantize_blockwise(x, blocksize=256)

    def decode() -> torch.Tensor:
        return bnb.dequantize_blockwise(*encoded)

    return decode, decode


def _accumulate_agoq(x: torch.Tensor) -> tuple[Work, Work]:
    encoded, total = agoq_comm.encode(x), torch.zeros_like(x)
    once = agoq_comm.decode_accumulate(encoded, total.clone())
    return lambda: agoq_comm.decode_accumulate(encoded, total), lambda: once


def _accumulate_torch(x: torch.Tensor) -> tuple[Work, Work]:
    (codes, scales), total = _torch_encode(x), torch.zeros_like(x)
    once = _torch_decode(codes, scales, torch.empty_like(x))
    return lambda: total.view(-1, _BLOCK).addcmul_(codes, scales), lambda: once


def _accumulate_exactly(x: torch.Tensor) -> tuple[Work, Work]:
    total = torch.zeros_like(x)
    return lambda: total.add_(x), lambda: x


CONTENDERS: dict[str, dict[str, Callable[[torch.Tensor], tuple[Work, Work]]]] = {
    "encode": {
        "agoq": _encode_agoq,
        **{name: functools.partial(_encode_agoq, format=name[5:]) for name in _ERROR_BOUNDS},
        "torch": _encode_torch,
        "bitsandbytes": _encode_bitsandbytes,
        "memcpy": _memcpy,
    },
    "decode": {
        "agoq": _decode_agoq,
        **{name: functools.partial(_decode_agoq, format=name[5:]) for name in _ERROR_BOUNDS},
        "torch": _decode_torch,
        "bitsandbytes": _decode_bitsandbytes,
        "memcpy": _memcpy,
    },
    "accumulate": {
        "agoq": _accumulate_agoq,
        "torch": _accumulate_torch,
        "fp32-add": _accumulate_exactly,
    },
}
_CASES = [
    pytest.param(work, name, size, id=f"{work}-{size}-{name}")
    for work, contenders in CONTENDERS.items()
    for size in SIZES
    for name in contenders
]


@pytest.mark.parametrize("work,name,size", _CASES)
def test_codec(benchmark: BenchmarkFixture, work: str, name: str, size: str) -> None:
    """Time one contender at one size."""
    x = torch.randn(SIZES[size] // 4, generator=torch.Generator().manual_seed(1))
    timed, represented = CONTENDERS[work][name](x)
    benchmark.group = f"{work} {size}"
    benchmark(timed)
    # What computes something else is no contender.
    error = ((represented() - x).norm() / x.norm()).item()
    assert error < _ERROR_BOUNDS.get(name, _ERROR_BOUND)
    if benchmark.stats is not None:  # None with --benchmark-disable
        benchmark.extra_info["GB_per_s"] = SIZES[size] / benchmark.stats["median"] / 1e9
        benchmark.extra_info["relative_error"] = error
