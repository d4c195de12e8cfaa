"""One bucket of encoded gradients: adding to it, and reducing it over the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from agoq_comm import codec
from agoq_comm._single_tensor import all_gather_single
from agoq_comm.codec import Encoded, StochasticRounding
from agoq_comm.gradients.layout import BlockFormat, BucketLayout, Tile


class Bucket:
    """Encoded gradients of some parameters.

    On a device, all of it happens on the stream that is current at a call, and no call waits for
    the device. Not thread-safe. Between `start` and the end of `finish_result` or `keep_pieces`
    nothing is to be added.
    """

    def __init__(
        self,
        layout: BucketLayout,
        format: BlockFormat,
        group: dist.ProcessGroup,
        device: torch.device,
        error_feedback: bool,
    ) -> None:
        self.layout = layout
        self.data = torch.zeros(layout.nbytes, dtype=torch.uint8, device=device)
        #: What encoding lost so far, itself encoded, where that is fed back.
        self.lost = torch.zeros_like(self.data) if error_feedback else None
        self._format = format
        self._group = group
        self._tiles: dict[int, list[Tile]] = {index: [] for index in layout.parameters}
        for tile in layout.tiles:
            self._tiles[tile.parameter].append(tile)
        self._received: torch.Tensor | None = None
        self._work: Any = None

    @property
    def is_under_way(self) -> bool:
        """The exchange has been started, and not finished."""
        return self._work is not None

    # --- adding ----------------------------------------------------------------------------------

    def add(
        self, parameter: int, gradient: torch.Tensor, fresh: bool, rounding: Any = None
    ) -> None:
        """Add a gradient, in fp32: decode, add, encode. A `fresh` one replaces what was there."""
        flat = gradient.reshape(-1)
        for tile in self._tiles[parameter]:
            piece = flat[tile.start : tile.stop]
            where = self._view(self.data, tile)
            draws = None if rounding is None else rounding(tile)
            if self.lost is not None:
                self._add_with_feedback(piece, where, self._view(self.lost, tile), fresh, draws)
            elif fresh:
                codec.encode(piece, rounding=draws, out=where)
            else:
                codec.sum_encode([where, piece], rounding=draws, out=where)

    def _add_with_feedback(
        self,
        piece: torch.Tensor,
        where: Encoded,
        lost: Encoded,
        fresh: bool,
        draws: StochasticRounding | None,
    ) -> None:
        """Add what was lost before, and note what is lost now."""
        pieces = [lost, piece] if fresh else [where, lost, piece]
        total = codec.sum_decode(pieces, dtype=torch.float32)
        codec.encode(total, rounding=draws, out=where)
        total -= codec.decode(where, dtype=torch.float32)
        # An overflow is to be seen in the gradient, once, and not to be remembered.
        total.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        codec.encode(total, out=lost)

    def clear(self, parameter: int) -> None:
        """Make a gradient zero: the codes and scales of zeros are zeros."""
        for tile in self._tiles[parameter]:
            self._view(self.data, tile).data.zero_()

    # --- reducing --------------------------------------------------------------------------------

    def start(self) -> None:
        """Send each owner its tiles, as they are stored."""
        self._received = torch.empty_like(self.data)
        self._work = dist.all_to_all_single(
            self._received, self.data, group=self._group, async_op=True
        )

    def start_result(self, factor: float) -> None:
        """Sum the own tiles over the ranks and send the encoded sums to all."""
        pieces = self._wait()
        mine = self.data.new_zeros(self.layout.part_bytes)
        for tile in self.layout.of_owner(self._group.rank()):
            own = self._encoded(mine[tile.offset : tile.offset + tile.nbytes], tile)
            codec.sum_encode(self._pieces(pieces, tile), factor=factor, out=own)
        self._work = all_gather_single(self.data, mine, group=self._group, async_op=True)

    def finish_result(self) -> None:
        """Wait for the sums of all owners; `read` returns them then."""
        self._work.wait()
        self._work = None

    def keep_pieces(self) -> None:
        """Keep the pieces of the own tiles instead of what was sent; `read_shard` sums them."""
        self.data = self._wait()

    def _wait(self) -> torch.Tensor:
        if self._received is None:
            raise RuntimeError(
                "agoq_comm: an earlier reduce() of this step failed. Make new QuantizedGradients, "
                "on a new group if this one has lost a rank."
            )
        self._work.wait()
        received, self._received, self._work = self._received, None, None
        return received

    # --- reading ---------------------------------------------------------------------------------

    def read(self, parameter: int, dtype: torch.dtype) -> torch.Tensor:
        """Decode a gradient, flat."""
        tiles = self._tiles[parameter]
        out = self.data.new_empty(tiles[-1].stop if tiles else 0, dtype=dtype)
        for tile in tiles:
            codec.decode(self._view(self.data, tile), out=out[tile.start : tile.stop])
        return out

    def read_shards(
        self, factor: float, dtype: torch.dtype | None = None
    ) -> Iterator[tuple[Tile, torch.Tensor]]:
        """Sum the pieces of each own tile, in fp32 and in rank order; after `keep_pieces`."""
        for tile in self.layout.of_owner(self._group.rank()):
            pieces = self._pieces(self.data, tile)
            yield tile, codec.sum_decode(pieces, factor=factor, dtype=dtype or self.layout.dtype)

    def _encoded(self, data: torch.Tensor, tile: Tile) -> Encoded:
        return self._format.view(data, tile.numel, self.layout.dtype)

    def _view(self, data: torch.Tensor, tile: Tile) -> Encoded:
        start = tile.owner * self.layout.part_bytes + tile.offset
        return self._encoded(data[start : start + tile.nbytes], tile)

    def _pieces(self, received: torch.Tensor, tile: Tile) -> list[Encoded]:
        """Return all ranks' pieces of an own tile."""
        parts = received.view(self.layout.ranks, self.layout.part_bytes)
        return [
            self._encoded(part[tile.offset : tile.offset + tile.nbytes], tile) for part in parts
        ]
