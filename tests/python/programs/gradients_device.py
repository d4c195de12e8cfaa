"""Gradients of parameters on a device: the same bits as on the CPU, and nothing beside the device.

Torch's operators on the fake device compute what the CPU's do, so all of a step can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import device_fake
from agoq_comm.gradients import (
    ChunkedOptimizer,
    GradientClipping,
    QuantizedGradients,
    ShardedOptimizer,
)
from checks import Checks
from programs.common import data, equal, refused
from ranks import Rank

checks = Checks()
WIDTH = 96
DEVICES = ("cpu", "fake")


def prepare(me: Rank) -> None:
    device_fake.load(me)
    device_fake.load_codec()


def model(device: str) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, 200), nn.ReLU(), nn.Linear(200, WIDTH)).to(device)


def backward(me: Rank, net: nn.Module, batch: int) -> None:
    x = data(me.rank, 8, WIDTH, seed=20 + batch).to(next(net.parameters()).device)
    net(x).square().mean().backward()


def accumulate(me: Rank, net: nn.Module, gradients: QuantizedGradients, step: int = 0) -> None:
    """Three micro-batches; buckets go out during the last one."""
    with gradients.no_sync():
        for batch in range(2):
            backward(me, net, 3 * step + batch)
    backward(me, net, 3 * step + 2)


def on_both(run: Callable[[str], list[torch.Tensor]]) -> None:
    """Run on both devices and compare to the bit."""
    on_cpu, on_device = (run(device) for device in DEVICES)
    for right, actual in zip(on_cpu, on_device, strict=True):
        assert actual.device.type == "fake"
        equal(actual.cpu(), right)


@checks
def reduced_gradients_equal_those_of_the_cpu(me: Rank) -> None:
    for keywords in ({}, {"error_feedback": True}, {"bucket_numel": 1}):

        def run(device: str, keywords: dict[str, Any] = keywords) -> list[torch.Tensor]:
            net = model(device)
            gradients = QuantizedGradients(net, **keywords)
            accumulate(me, net, gradients)
            assert all(p.grad is None for p in net.parameters())
            assert {bucket.data.device.type for bucket in gradients.buckets} == {device}
            gradients.reduce()
            return [gradients.gradient(p) for p in net.parameters()]

        on_both(run)


@checks
def a_chunked_optimizers_steps_equal_those_of_the_cpu(me: Rank) -> None:
    def run(device: str) -> list[torch.Tensor]:
        net = model(device)
        gradients = QuantizedGradients(net, bucket_numel=10_000)
        clipping = GradientClipping(0.001, dist.group.WORLD, lambda p: me.rank == 0)
        optimizer = ChunkedOptimizer(
            torch.optim.AdamW(net.parameters(), lr=0.01), gradients, clipping
        )
        for step in range(2):
            accumulate(me, net, gradients, step)
            assert optimizer.param_groups[0]["params"][0].device.type == device
            assert optimizer.gradient_norm > 0.001, "nothing would be clipped"
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach() for p in net.parameters()]

    on_both(run)


@checks
def a_sharded_optimizers_steps_equal_those_of_the_cpu(me: Rank) -> None:
    def run(device: str) -> list[torch.Tensor]:
        net = model(device)
        gradients = QuantizedGradients(net, result="reduce_scatter", bucket_numel=10_000)
        optimizer = ShardedOptimizer(
            net.parameters(), torch.optim.AdamW, gradients, clipping=0.001, lr=0.01
        )
        for step in range(2):
            accumulate(me, net, gradients, step)
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach() for p in net.parameters()]

    on_both(run)


@checks
def a_step_is_saved_on_one_device_and_loaded_on_another(me: Rank) -> None:
    def run(device: str) -> list[torch.Tensor]:
        net = model("cpu")
        gradients = QuantizedGradients(net)
        with gradients.no_sync():
            backward(me, net, 0)
        state = gradients.state_dict()
        net = model(device)
        gradients = QuantizedGradients(net)
        gradients.load_state_dict(state)
        backward(me, net, 1)
        gradients.reduce()
        return [gradients.gradient(p) for p in net.parameters()]

    on_both(run)


@checks
def parameters_on_two_devices_are_refused(me: Rank) -> None:
    net = nn.Sequential(model("cpu"), model("fake"))
    with refused("parameters are on cpu, fake:0; make one QuantizedGradients", ValueError):
        QuantizedGradients(net)


@checks
def a_device_without_kernels_is_refused(me: Rank) -> None:
    with refused("on the CPU and on CUDA devices", TypeError):
        QuantizedGradients([nn.Parameter(torch.zeros(3, device="meta"))])
