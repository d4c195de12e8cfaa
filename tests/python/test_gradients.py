"""programs/gradients_*.py on two and three ranks, and the layout by itself."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agoq_comm.gradients.layout import BlockFormat, plan
from checks import expect_ok
from programs import (
    gradients_basic,
    gradients_memory,
    gradients_optimizers,
    gradients_rounding,
)

FORMAT = BlockFormat("int8", 128, "bf16")


@pytest.mark.parametrize("size,name", gradients_basic.checks.cases(2, 3))
def test_basic(size: int, name: str) -> None:
    expect_ok("programs.gradients_basic", size, name)


@pytest.mark.parametrize("size,name", gradients_optimizers.checks.cases(2, 3))
def test_optimizers(size: int, name: str) -> None:
    expect_ok("programs.gradients_optimizers", size, name, timeout=240)


@pytest.mark.parametrize("size,name", gradients_rounding.checks.cases(2))
def test_rounding(size: int, name: str) -> None:
    expect_ok("programs.gradients_rounding", size, name)


@pytest.mark.parametrize("size,name", gradients_memory.checks.cases(2))
def test_memory(size: int, name: str) -> None:
    expect_ok("programs.gradients_memory", size, name)


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=8),
    st.integers(1, 5),
    st.integers(1, 4000),
)
def test_tiles_cover_each_gradient_once_in_whole_blocks(
    sizes: list[int], ranks: int, bucket_numel: int
) -> None:
    layouts = plan([torch.empty(n) for n in sizes], FORMAT, ranks, bucket_numel)
    assert sorted(i for layout in layouts for i in layout.parameters) == list(range(len(sizes)))
    seen: set[int] = set()
    for layout in layouts:
        blocks = [0] * ranks
        for index in layout.parameters:
            tiles = [tile for tile in layout.tiles if tile.parameter == index]
            assert [tile.start for tile in tiles] == [0, *(tile.stop for tile in tiles)][:-1]
            assert not tiles or tiles[-1].stop == sizes[index]
            assert all(tile.start % FORMAT.block == 0 for tile in tiles)
        for owner in range(ranks):
            end = 0
            for tile in layout.of_owner(owner):
                assert tile.offset % 4 == 0 and tile.offset >= end
                end = tile.offset + tile.nbytes
                blocks[owner] += -(-tile.numel // FORMAT.block)
                elements = set(range(tile.first_element, tile.first_element + tile.numel))
                assert not elements & seen
                seen |= elements
            assert end <= layout.part_bytes
        assert max(blocks) <= -(-sum(blocks) // ranks)


def test_buckets_begin_with_the_last_parameter() -> None:
    layouts = plan([torch.empty(300) for _ in range(4)], FORMAT, 2, 600)
    assert [layout.parameters for layout in layouts] == [(3, 2), (1, 0)]
