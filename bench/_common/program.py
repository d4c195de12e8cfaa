"""The course of a program: message sizes outside, contenders inside."""

from __future__ import annotations

import dataclasses
from functools import partial

import torch
import torch.distributed as dist

from _common import errors, launcher
from _common.buffers import Buffers
from _common.command_line import Settings
from _common.contenders import Contender, choose_device, make_contenders
from _common.report import Report, Result, summarize
from _common.timing import time_alternating
from _common.workload import COLLECTIVE, Kind, MakeWorkload, Workload


def run_program(
    title: str,
    operation: str,
    make_workload: MakeWorkload,
    settings: Settings,
    kind: Kind = COLLECTIVE,
) -> int:
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
    kind
        The family of the program.

    Returns
    -------
    int
        The exit status: 1 when a validation failed.
    """
    launcher.adopt_mpirun_variables()
    device = choose_device(settings.device)
    if not kind.sized:
        settings = dataclasses.replace(settings, sizes=(0,), validate=False)
    buffers = Buffers(settings.dtype, device, settings.library)
    with make_contenders(settings.contenders) as contenders:
        if kind.pair and dist.get_world_size() != 2:
            raise SystemExit(f"this test takes 2 ranks, not {dist.get_world_size()}")
        report = Report(title, settings, kind)
        for size in settings.sizes:
            count = max(1, size // settings.dtype.itemsize)
            workload = make_workload(count, buffers)
            checks = [_check(workload, contender, operation, settings) for contender in contenders]
            seconds = time_alternating(
                [partial(workload.run, contender.calls) for contender in contenders],
                workload.prepare,
                device,
                settings.warmup,
                settings.calls(size),
            )
            seconds /= workload.messages
            if kind.pair:
                seconds = seconds[:1]
            report.add(
                [
                    _result(contender, size, workload, check, seconds[:, index], seconds[:, 0])
                    for index, (contender, check) in enumerate(zip(contenders, checks, strict=True))
                ]
            )
        passed = report.finish()
    return 0 if passed else 1


# Bytes sent and how that is known, relative error, and whether it passes.
_Check = tuple[int, str, float | None, bool | None]


def _check(workload: Workload, contender: Contender, operation: str, settings: Settings) -> _Check:
    """Make one untimed call and look at its result and at what it sent."""
    workload.prepare()
    quantized_before, sent_before = _counters(contender, operation)
    workload.run(contender.calls)
    error = workload.error()
    quantized, sent = _counters(contender, operation)
    valid = None
    if settings.validate and error is not None:
        ranks = dist.get_world_size()
        bound = errors.error_bound(settings.dtype, ranks, quantized > quantized_before)
        valid = error <= bound
    if contender.counts_bytes:
        sent_once = (sent - sent_before) // workload.sends
        return sent_once, "counted by agoq_comm.stats", error, valid
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
