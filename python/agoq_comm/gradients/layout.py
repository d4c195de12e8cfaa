"""Where each gradient lies in the encoded buckets.

A bucket holds gradients of one dtype, each filled up to whole blocks, and deals its blocks out to
the ranks in equal shares. A tile is what one rank owns of one gradient: it is encoded by itself and
never shares a block. Tiles of one owner lie together, so that the bucket is sent to the owners as
it is::

    | tiles of rank 0 ... | tiles of rank 1 ... | ...        each part of `part_bytes`
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from agoq_comm import _C
from agoq_comm.codec import Encoded

# Of encoded bytes, for the codec.
_ALIGNMENT = 4


@dataclass(frozen=True)
class BlockFormat:
    """How gradients are encoded; a group's options say it."""

    element: str
    block: int
    scale: str

    @classmethod
    def of(cls, options: _C.Options) -> BlockFormat:
        """Use the block format of a group's options."""
        return cls(options.format, options.block, options.scale)

    def encoded_bytes(self, count: int) -> int:
        """Bytes of `count` elements."""
        return _codec(self).encoded_bytes(count)

    def view(self, data: torch.Tensor, count: int, dtype: torch.dtype) -> Encoded:
        """View bytes as `count` encoded elements."""
        return Encoded(data, torch.Size((count,)), dtype, self.element, self.block, self.scale)


@functools.lru_cache(maxsize=64)
def _codec(format: BlockFormat) -> _C.Codec:
    return _C.Codec(format.element, format.block, format.scale)


@dataclass(frozen=True)
class Tile:
    """A run of elements of one parameter's gradient, and where its bytes are."""

    parameter: int
    start: int
    stop: int
    owner: int
    #: From the beginning of the owner's part.
    offset: int
    nbytes: int
    #: Index of its first element among all elements of all buckets, for draws of random numbers.
    first_element: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.stop - self.start


@dataclass(frozen=True)
class BucketLayout:
    """The tiles of one bucket, in the order of its parameters."""

    dtype: torch.dtype
    parameters: tuple[int, ...]
    tiles: tuple[Tile, ...]
    part_bytes: int
    ranks: int

    @property
    def nbytes(self) -> int:
        """Bytes of the whole bucket."""
        return self.ranks * self.part_bytes

    def of_owner(self, rank: int) -> list[Tile]:
        """Tiles that `rank` reduces."""
        return [tile for tile in self.tiles if tile.owner == rank]


def plan(
    parameters: Iterable[torch.Tensor], format: BlockFormat, ranks: int, bucket_numel: int
) -> list[BucketLayout]:
    """Lay out gradients, the last parameter's first: that is how a backward pass computes them."""
    open_buckets: dict[torch.dtype, list[tuple[int, int]]] = {}
    closed: list[tuple[torch.dtype, list[tuple[int, int]]]] = []
    for index, parameter in reversed(list(enumerate(parameters))):
        members = open_buckets.setdefault(parameter.dtype, [])
        members.append((index, parameter.numel()))
        if sum(numel for _, numel in members) >= bucket_numel:
            closed.append((parameter.dtype, open_buckets.pop(parameter.dtype)))
    closed.extend(open_buckets.items())
    layouts, first_element = [], 0
    for dtype, members in closed:
        layouts.append(_lay_out(dtype, members, format, ranks, first_element))
        first_element += sum(numel for _, numel in members)
    return layouts


def _lay_out(
    dtype: torch.dtype,
    members: list[tuple[int, int]],
    format: BlockFormat,
    ranks: int,
    first_element: int,
) -> BucketLayout:
    block = format.block
    blocks = sum(-(-numel // block) for _, numel in members)
    share = -(-blocks // ranks)
    used = [0] * ranks
    tiles: list[Tile] = []
    begin = 0  # First block of the member at hand.
    for index, numel in members:
        start = 0
        while start < numel:
            at = begin + start // block
            owner = at // share
            stop = min(numel, start + ((owner + 1) * share - at) * block)
            nbytes = format.encoded_bytes(stop - start)
            tiles.append(
                Tile(index, start, stop, owner, used[owner], nbytes, first_element + start)
            )
            used[owner] += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
            start = stop
        begin += -(-numel // block)
        first_element += numel
    names = tuple(index for index, _ in members)
    return BucketLayout(dtype, names, tuple(tiles), max(used), ranks)
