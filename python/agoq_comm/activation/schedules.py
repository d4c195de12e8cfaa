"""How many microbatches' activations a pipeline rank holds at once, by its schedule.

A rank's virtual stages are its model *chunks*; the forward pass of one microbatch through one chunk
makes activations that are held until the backward pass of the same microbatch and chunk. What is
counted here is the largest number of such chunk-microbatches that are held at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gpipe", "1f1b"]


@dataclass(frozen=True)
class PipelineSchedule:
    """A schedule of pipeline parallelism, as Megatron-LM and torch.distributed.pipelining run it.

    Parameters
    ----------
    ranks : int
        Pipeline ranks, p.
    microbatches : int
        Microbatches of a step, M.
    chunks : int
        Model chunks of each rank, v. More than one of them interleaves 1F1B.
    group_size : int, optional
        Microbatches in a row through one chunk before the next chunk's turn, g: Megatron's
        `microbatch_group_size_per_vp_stage`; in torch, the microbatches of a round. p by default.
    kind : {"1f1b", "gpipe"}
        GPipe runs all forward passes before the first backward pass.

    Raises
    ------
    ValueError
        Where no such schedule exists.
    """

    ranks: int
    microbatches: int
    chunks: int = 1
    group_size: int | None = None
    kind: Kind = "1f1b"

    def __post_init__(self) -> None:
        for name in ("ranks", "microbatches", "chunks"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"pipeline: {name} is {getattr(self, name)}; it must be at least 1"
                )
        if self.kind not in ("gpipe", "1f1b"):
            raise ValueError(f"pipeline: no schedule {self.kind!r}; take 'gpipe' or '1f1b'")
        if self.chunks > 1 and self.kind == "1f1b":
            self._check_groups()

    def _check_groups(self) -> None:
        group, least = self.group, min(self.ranks, self.microbatches)
        if not least <= group <= self.microbatches:
            raise ValueError(
                f"pipeline: group_size is {group}; with {self.ranks} ranks and "
                f"{self.microbatches} microbatches it must be from {least} to {self.microbatches}"
            )
        if 0 < self.microbatches % group < self.ranks:
            raise ValueError(
                f"pipeline: groups of {group} leave {self.microbatches % group} of "
                f"{self.microbatches} microbatches, fewer than the {self.ranks} ranks; change "
                f"group_size or the number of microbatches"
            )

    @property
    def group(self) -> int:
        """Microbatches in a row through one chunk."""
        if self.group_size is None:
            return min(self.ranks, self.microbatches)
        return self.group_size

    def in_flight(self, rank: int) -> int:
        """Return the chunk-microbatches that `rank` holds at its peak."""
        if not 0 <= rank < self.ranks:
            raise ValueError(f"pipeline: rank is {rank}; there are {self.ranks} ranks, from 0")
        everything = self.microbatches * self.chunks
        if self.kind == "gpipe":
            return everything
        behind = self.ranks - 1 - rank
        # The steady state runs a forward pass before each backward pass: one more than the warm-up.
        if self.chunks == 1:
            return min(everything, behind + 1)
        return min(everything, 2 * behind + (self.chunks - 1) * self.group + 1)
