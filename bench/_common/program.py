"""The course of a program that measures one collective: sizes outside, contenders inside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
import torch.distributed as dist

from _common import errors
from _common.command_line import Settings
from _common.contenders import Contender, choose_device, make_contenders
from _common.report import Report, Result, summarize
from _common.timing import time_alternating


class Workload(Protocol):
    """A collective on buffers of one size.

    Attributes
    ----------
    ring_bytes
        Bytes a rank sends if the algorithm is bandwidth-optimal and exact.
    formula
        The formula of `ring_bytes`, for people.
    """

    ring_bytes: int
    formula: str

    def prepare(self) -> None:
        """Restore what a call overwrites."""

    def run(self, group: dist.ProcessGroup) -> None:
        """Make the call, and wait until its result is there."""

    def error(self) -> float:
        """Relative error of the last call's result."""


# Makes the workload of a number of elements.
MakeWorkload = Callable[[int, torch.dtype, torch.device], Workload]


def run_program(title: str, operation: str, make_workload: MakeWorkload, settings: Settings) -> int:
    """Measure, print, and write what the settings ask for.

    Parameters
    ----------
    title
        The collective as the header names it.
    operation
        Its name in `agoq_comm.stats`.
    make_workload
        What is measured.
    settings
        The command line.

    Returns
    -------
    int
        The exit status: 1 when a validation failed.
    """
    device = choose_device(settings.device)
    with make_contenders(settings.contenders) as contenders:
        report = Report(title, settings)
        for size in settings.sizes:
            count = max(1, size // settings.dtype.itemsize)
            workload = make_workload(count, settings.dtype, device)
            checks = [_check(workload, contender, operation, settings) for contender in contenders]
            seconds = time_alternating(
                [partial(workload.run, contender.group) for contender in contenders],
                workload.prepare,
                device,
                settings.warmup,
                settings.calls(size),
            )
            report.add(
                [
                    _result(contender, size, workload, check, seconds[:, index], seconds[:, 0])
                    for index, (contender, check) in enumerate(zip(contenders, checks, strict=True))
                ]
            )
        passed = report.finish()
    return 0 if passed else 1


# Bytes sent and how that is known, relative error, and whether it passes.
_Check = tuple[int, str, float, bool | None]


def _check(workload: Workload, contender: Contender, operation: str, settings: Settings) -> _Check:
    """Make one untimed call and look at its result and at what it sent."""
    workload.prepare()
    quantized_before, sent_before = _counters(contender, operation)
    workload.run(contender.group)
    error = workload.error()
    quantized, sent = _counters(contender, operation)
    valid = None
    if settings.validate:
        ranks = dist.get_world_size()
        bound = errors.error_bound(settings.dtype, ranks, quantized > quantized_before)
        valid = error <= bound
    if contender.counts_bytes:
        return sent - sent_before, "counted by agoq_comm.stats", error, valid
    return workload.ring_bytes, f"not counted; formula {workload.formula}", error, valid


def _counters(contender: Contender, operation: str) -> tuple[int, int]:
    return contender.counters(operation) if contender.counts_bytes else (0, 0)


def _result(
    contender: Contender,
    size: int,
    workload: Workload,
    check: _Check,
    seconds: torch.Tensor,
    base: torch.Tensor,
) -> Result:
    sent, source, error, valid = check
    times = summarize(seconds, base)
    return Result(
        contender=contender.name,
        size=size,
        calls=seconds.shape[1],
        bus_bandwidth=workload.ring_bytes / (times["median_us"] / 1e6),
        wire_bytes=sent,
        wire_bytes_source=source,
        relative_error=error,
        valid=valid,
        **times,
    )
