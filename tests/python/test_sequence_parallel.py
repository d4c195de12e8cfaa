"""programs/sequence_*.py on two and three ranks, and the row blocks by themselves."""

from __future__ import annotations

import pytest
import torch

import agoq_comm
from agoq_comm import _C
from agoq_comm.activation.formats import BITS
from agoq_comm.sequence_parallel.row_blocks import RowBlocks
from checks import expect_ok
from programs import row_oracle, sequence_contract, sequence_regions


@pytest.mark.parametrize("size,name", sequence_regions.checks.cases(2, 3))
def test_regions(size: int, name: str) -> None:
    expect_ok("programs.sequence_regions", size, name)


@pytest.mark.parametrize("size,name", sequence_contract.checks.cases(2, 3))
def test_contract(size: int, name: str) -> None:
    expect_ok("programs.sequence_contract", size, name, timeout=240)


@pytest.mark.parametrize("width", [1, 72, 127, 128, 129, 200, 384])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_blocks_end_with_their_row(width: int, rows: int) -> None:
    x = torch.randn(rows, width) * torch.logspace(-3, 3, rows)[:, None]
    codec = RowBlocks(width)
    data = codec.encode(x)
    codes = rows * width
    assert (
        data.numel() == codec.encoded_bytes(rows) == codes + codes % 2 + rows * 2 * -(-width // 128)
    )
    out = torch.empty_like(x)
    codec.decode_into(out, data)
    torch.testing.assert_close(out, row_oracle.roundtrip(x), rtol=0, atol=0)


@pytest.mark.parametrize("element", BITS)
@pytest.mark.parametrize("scale", ["bf16", "fp32"])
def test_rows_take_as_many_bytes_as_the_core_says(element: str, scale: str) -> None:
    for block in (32, 128, 1024):
        core = _C.Codec(element, block, scale)
        for width in (1, 3, 31, 32, 127, 129, 300, 1025):
            rows = RowBlocks(width, element, block, scale)
            for count in (0, 1, 2, 3, 7):
                assert rows.encoded_bytes(count) == core.encoded_rows_bytes(count, width)


def test_whole_blocks_are_the_codecs_own_bytes() -> None:
    x = torch.randn(7, 256)
    assert torch.equal(RowBlocks(256).encode(x), agoq_comm.encode(x).data)
