"""torch.distributed.pipelining with formats by rank: 1F1B and interleaved 1F1B on 4 ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from agoq_comm.activation import Policy, compress
from agoq_comm.activation.pipeline import byte_budget, peak_bytes, pipeline_formats, pipeline_policy
from agoq_comm.activation.pipeline_profile import Profile
from agoq_comm.activation.schedules import PipelineSchedule
from checks import Checks
from ranks import Rank

checks = Checks()

# Ranks compute the whole model's gradients between their collectives.
INIT = {"timeout": 120}

WIDTH, ROWS, MICROBATCHES = 128, 64, 8
# What the first rank stores, which holds the most microbatches.
NARROWEST = Policy.agoq(norm="fp4/128")


class Block(nn.Module):
    """The parts of a layer that a policy treats differently."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.act = nn.SiLU()
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


def _blocks(count: int) -> nn.ModuleList:
    torch.manual_seed(5)
    return nn.ModuleList(Block() for _ in range(count))


def _data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    shape = (MICROBATCHES * ROWS, WIDTH)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


@functools.cache
def _profile() -> tuple[Profile, int]:
    """What a block saves for one microbatch, and the bytes that the loss saves."""
    block, (x, y) = _blocks(1)[0], _data()
    with compress(block, NARROWEST) as context:
        loss = F.mse_loss(block(x[:ROWS]), y[:ROWS])
        records = context.accounting.records
    loss.backward()
    inside = [record for record in records if record.tensor_class != "loss"]
    return Profile.of(inside), sum(r.stored_bytes for r in records if r.tensor_class == "loss")


def _budget(schedule: PipelineSchedule, rank: int) -> int:
    """Bytes for what blocks save: the last rank holds one microbatch's loss besides."""
    profile, loss = _profile()
    return byte_budget(profile, schedule) - (loss if rank == schedule.ranks - 1 else 0)


def _policy(schedule: PipelineSchedule, rank: int) -> Policy:
    arguments = (schedule.ranks, rank, schedule.chunks, schedule.group_size, schedule.microbatches)
    budget = _budget(schedule, rank)
    return pipeline_policy(NARROWEST, *arguments, _profile()[0], budget=budget)


def _whole_policy(schedule: PipelineSchedule) -> Policy:
    """What each rank's policy says of its own blocks, for the unpipelined model."""
    rules = [
        replace(rule, module=f"{block}.*")
        for block in range(schedule.ranks * schedule.chunks)
        for rule in _policy(schedule, block % schedule.ranks).rules
    ]
    return Policy(rules)


def _unpipelined(schedule: PipelineSchedule, policy: Policy) -> tuple[list[float], nn.ModuleList]:
    blocks = _blocks(schedule.ranks * schedule.chunks)
    x, y = _data()
    losses = []
    with compress(blocks, policy):
        for rows, target in zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES), strict=True):
            out = functools.reduce(lambda value, block: block(value), blocks, rows)
            loss = F.mse_loss(out, target)
            losses.append(loss.item())
            (loss / MICROBATCHES).backward()
    return losses, blocks


def _run(me: Rank, schedule: PipelineSchedule, runtime: Callable[..., object]) -> None:
    blocks = _blocks(schedule.ranks * schedule.chunks)
    mine = nn.ModuleList(blocks[me.rank :: schedule.ranks])
    stages = [
        PipelineStage(block, me.rank + index * me.size, len(blocks), torch.device("cpu"))
        for index, block in enumerate(mine)
    ]
    run = runtime(stages if schedule.chunks > 1 else stages[0], MICROBATCHES, loss_fn=F.mse_loss)
    x, y = _data()
    losses: list[torch.Tensor] = []
    with compress(mine, _policy(schedule, me.rank)) as context:
        if me.rank == me.size - 1:
            run.step(target=y, losses=losses)
        elif me.rank == 0:
            run.step(x)
        else:
            run.step()

    # Bytes: what the formula says, and never more than rank 0 has.
    peaks: list[int] = [0] * me.size
    dist.all_gather_object(peaks, context.accounting.peak_stored_bytes)
    assert context.accounting.stored_bytes == 0
    profile, loss = _profile()
    assert peaks[0] == byte_budget(profile, schedule) == max(peaks)
    formats = pipeline_formats(profile, schedule, me.rank, _budget(schedule, me.rank))
    besides = loss if me.rank == me.size - 1 else 0
    assert peaks[me.rank] == peak_bytes(profile, schedule, me.rank, formats) + besides
    # Later ranks use what they have room for: at least three quarters of what rank 0 holds, or
    # all is exact.
    assert peaks[me.rank] >= 0.75 * peaks[0] or set(formats.values()) == {"keep"}

    # The forward pass is exact whatever is stored, so losses are the whole model's. Gradients
    # are of the same codes, but here a sum over microbatches is scaled, there each of its terms.
    reference, whole = _unpipelined(schedule, _whole_policy(schedule))
    if me.rank == me.size - 1:
        torch.testing.assert_close(torch.stack(losses), torch.tensor(reference), rtol=1e-6, atol=0)
    for index, block in enumerate(mine):
        right = whole[me.rank + index * me.size]
        for p, q in zip(block.parameters(), right.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-6)
    # That is close to, and not the same as, what nothing quantized gives.
    _, exact = _unpipelined(schedule, Policy.exact())
    far = _distance(whole, exact)
    assert 1e-4 < far < 0.2, far


def _distance(ours: nn.Module, exact: nn.Module) -> float:
    pairs = list(zip(ours.parameters(), exact.parameters(), strict=True))
    error = sum((p.grad - q.grad).square().sum() for p, q in pairs)
    return float((error / sum(q.grad.square().sum() for _, q in pairs)).sqrt())


@checks
def one_forward_one_backward(me: Rank) -> None:
    _run(me, PipelineSchedule(me.size, MICROBATCHES), Schedule1F1B)


@checks
def interleaved(me: Rank) -> None:
    _run(me, PipelineSchedule(me.size, MICROBATCHES, chunks=2), ScheduleInterleaved1F1B)
