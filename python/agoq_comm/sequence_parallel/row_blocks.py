"""Encoded bytes of a matrix whose blocks run along its rows and end with them.

Where a row is a whole number of blocks these are the bytes of the flat matrix. Where it is not, the
last block of each row is short: encoded as if filled up with zeros, which do not travel::

    codes of all rows, each from a whole byte on | zero bytes up to a scale | scales of all rows

On the CPU the core does it (row_codec.h); on a device rows are filled up for its flat kernels,
which serves what no group's core encodes: an all-reduce, and groups without kernels for rows.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from agoq_comm import _C, codec
from agoq_comm._arrays import encodable_name
from agoq_comm._encoded import core_rounding
from agoq_comm.codec import Encoded, StochasticRounding


@dataclass(frozen=True)
class RowBlocks:
    """Encodes and decodes rows of one width.

    Parameters
    ----------
    width : int
        Elements of a row.
    format, block, scale
        The block format, as `agoq_comm.encode` takes it.
    """

    width: int
    format: str = "int8"
    block: int = 128
    scale: str = "bf16"

    @classmethod
    def of(cls, width: int, options: _C.Options) -> RowBlocks:
        """Use the block format of a group's options."""
        # A width is a constant of a compiled graph, whatever else of a shape is not.
        return cls(int(width), options.format, options.block, options.scale)

    @property
    def _padded_width(self) -> int:
        return -(-self.width // self.block) * self.block

    def _scale_offset(self, rows: int) -> int:
        return _codec(self).scale_offset(rows * self._padded_width)

    def _padding_bytes(self) -> int:
        """Bytes at the end of a row's codes that hold nothing: a format's codes are dense."""
        return self._scale_offset(1) * (self._padded_width - self.width) // self._padded_width

    @property
    def _code_bytes(self) -> int:
        """Of one row."""
        return self._scale_offset(1) - self._padding_bytes()

    @property
    def _scale_bytes(self) -> int:
        """Of one block, and what scales are aligned to."""
        return 2 if self.scale == "bf16" else 4

    def _gap(self, rows: int) -> int:
        """Bytes between the codes and the scales."""
        return -(rows * self._code_bytes) % self._scale_bytes

    def encoded_bytes(self, rows: int) -> int:
        """Bytes of `rows` rows, a number or what torch's compiler has in the place of one."""
        scales = self._padded_width // self.block * self._scale_bytes
        return rows * (self._code_bytes + scales) + self._gap(rows)

    def encode(self, x: torch.Tensor, rounding: StochasticRounding | None = None) -> torch.Tensor:
        """Encode a matrix of rows to bytes."""
        if x.device.type == "cpu":
            x, rows = x.contiguous(), x.shape[0]
            data = x.new_empty(self.encoded_bytes(rows), dtype=torch.uint8)
            _codec(self).encode_rows(
                x.data_ptr(),
                encodable_name(x, "x"),
                rows,
                self.width,
                data.data_ptr(),
                core_rounding(rounding),
            )
            return data
        data = codec.encode(
            self._pad(x), format=self.format, block=self.block, scale=self.scale, rounding=rounding
        ).data
        return self._without_padding(data, x.shape[0])

    def decode_into(self, out: torch.Tensor, data: torch.Tensor) -> None:
        """Decode the bytes of as many rows as the contiguous matrix `out` has."""
        if out.device.type == "cpu":
            _codec(self).decode_rows(
                data.data_ptr(), len(out), self.width, out.data_ptr(), encodable_name(out, "out")
            )
            return
        encoded = self._with_padding(data, len(out), out.dtype)
        if self.width == self._padded_width:
            codec.decode(encoded, out=out)
        else:
            out.copy_(codec.decode(encoded)[:, : self.width])

    def sum_decode(
        self, pieces: list[torch.Tensor], own: torch.Tensor, own_rank: int
    ) -> torch.Tensor:
        """Sum the pieces of all ranks in fp32 and in rank order, `own` unencoded."""
        ordered = self._in_rank_order(pieces, own, own_rank)
        return codec.sum_decode(ordered, dtype=own.dtype)[:, : self.width].contiguous()

    def sum_encode(
        self,
        pieces: list[torch.Tensor],
        own: torch.Tensor,
        own_rank: int,
        rounding: StochasticRounding | None = None,
    ) -> torch.Tensor:
        """Encode the sum that `sum_decode` would return, without rounding it to a type first."""
        ordered = self._in_rank_order(pieces, own, own_rank)
        return self._without_padding(
            codec.sum_encode(ordered, rounding=rounding).data, own.shape[0]
        )

    def _in_rank_order(
        self, pieces: list[torch.Tensor], own: torch.Tensor, own_rank: int
    ) -> list[Encoded | torch.Tensor]:
        return [
            self._pad(own) if rank == own_rank else self._with_padding(data, len(own), own.dtype)
            for rank, data in enumerate(pieces)
        ]

    def _pad(self, x: torch.Tensor) -> torch.Tensor:
        missing = self._padded_width - self.width
        return F.pad(x, (0, missing)) if missing else x.contiguous()

    def _without_padding(self, data: torch.Tensor, rows: int) -> torch.Tensor:
        padding = self._padding_bytes()
        if padding == 0 or rows == 0:
            return data
        end = self._scale_offset(rows)
        codes = data[:end].view(rows, -1)[:, :-padding]
        gap = data.new_zeros(self._gap(rows))
        return torch.cat((codes.reshape(-1), gap, data[end:]))

    def _with_padding(self, data: torch.Tensor, rows: int, dtype: torch.dtype) -> Encoded:
        padding = self._padding_bytes()
        if padding and rows:
            end = self._scale_offset(rows) - rows * padding
            codes = F.pad(data[:end].view(rows, -1), (0, padding))
            data = torch.cat((codes.view(-1), data[end + self._gap(rows) :]))
        elif data.data_ptr() % _ALIGNMENT:
            data = data.clone()
        shape = torch.Size((rows, self._padded_width))
        return Encoded(data, shape, dtype, self.format, self.block, self.scale)


@functools.lru_cache(maxsize=64)
def _codec(rows: RowBlocks) -> _C.Codec:
    return _C.Codec(rows.format, rows.block, rows.scale)


# Of encoded bytes, for the codec; a piece of a received buffer may start anywhere.
_ALIGNMENT = 4
