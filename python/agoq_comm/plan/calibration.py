"""Finds a cluster's constants from measurements, and how well the model then predicts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agoq_comm.plan.cluster import Cluster, Compute, Link
from agoq_comm.plan.model import predict
from agoq_comm.plan.samples import Sample

__all__ = ["Constants", "errors", "fit", "leave_one_rate_out"]


@dataclass(frozen=True)
class Constants:
    """What `fit` finds.

    Attributes
    ----------
    goodput : float
        Part of a link's bandwidth that carries payload.
    latency : float
        Between nodes, in seconds.
    compute : Compute
        Of a rank that has a core to itself.
    within : Link
        Of a node.
    """

    goodput: float
    latency: float
    compute: Compute
    within: Link

    def cluster(
        self, ranks: int, per_node: int, bandwidth: float, cores_per_rank: float = 1.0
    ) -> Cluster:
        """Return the cluster that these constants make of so many ranks."""
        between = Link(bandwidth * self.goodput, self.latency)
        compute = self.compute.shared(cores_per_rank)
        near = self.within
        within = replace(near, bandwidth=near.bandwidth * min(1.0, cores_per_rank))
        return Cluster(ranks, per_node, between, within, compute)


def _predicted(constants: Constants, sample: Sample) -> float:
    cluster = constants.cluster(
        sample.ranks, sample.per_node, sample.bandwidth, sample.cores_per_rank
    )
    return predict(
        cluster,
        sample.algorithm,
        sample.count,
        operation=sample.operation,
        itemsize=sample.itemsize,
    ).seconds


def errors(constants: Constants, samples: Sequence[Sample]) -> list[float]:
    """Return how far each prediction is from what was measured: -0.1 is ten per cent too fast."""
    return [_predicted(constants, sample) / sample.seconds - 1 for sample in samples]


# What may vary: goodput, latency, codec, sum, transport, message and the node's bandwidth, each as
# a factor of where the search starts, and within these bounds.
_Vector = tuple[float, ...]
_START: _Vector = (0.95, 50e-6, 1.0, 1.0, 6e9, 3e-6, 3.5e9)
_BOUNDS = (
    (0.5, 0.96),
    (1e-6, 5e-3),
    (0.2, 3.0),
    (0.2, 3.0),
    (0.5e9, 50e9),
    (1e-7, 1e-4),
    (0.5e9, 20e9),
)
_SWEEPS = 60
# What leaving the start by a factor e costs: what no sample tells stays where it was.
_PRIOR = 0.01


def _constants(vector: _Vector) -> Constants:
    goodput, latency, codec, adding, transport, message, within = vector
    base = Compute()
    compute = Compute(
        encode=base.encode * codec,
        sum=base.sum * adding,
        decode=base.decode * codec,
        transport=transport,
        message=message,
    )
    return Constants(goodput, latency, compute, Link(within, 5e-6, copied=True))


def fit(samples: Sequence[Sample]) -> Constants:
    """Return the constants that make the mean of |log(predicted / measured)| smallest.

    What the samples leave open (a rank's speed, where links were always slower) stays near the
    defaults.

    Raises
    ------
    ValueError
        There are no samples, or one took no time.
    """
    if not samples:
        raise ValueError("plan: there is nothing to fit; give results of linklab between nodes")
    if not all(sample.seconds > 0 for sample in samples):
        raise ValueError("plan: a sample took no time; its seconds must be more than 0")

    def loss(vector: _Vector) -> float:
        constants = _constants(vector)
        far = sum(abs(math.log(v / s)) for v, s in zip(vector, _START, strict=True))
        return _PRIOR * far + statistics.fmean(
            abs(math.log(_predicted(constants, sample) / sample.seconds)) for sample in samples
        )

    return _constants(_descend(loss, _START))


def _descend(loss: Callable[[_Vector], float], start: _Vector) -> _Vector:
    """Walk along one coordinate after the other, by factors that shrink where none helps."""
    best, lowest = start, loss(start)
    factor = 1.5
    for _ in range(_SWEEPS):
        improved = False
        for index, (low, high) in enumerate(_BOUNDS):
            for step in (factor, 1 / factor):
                moved = min(high, max(low, best[index] * step))
                candidate = (*best[:index], moved, *best[index + 1 :])
                value = loss(candidate)
                if value < lowest:
                    best, lowest, improved = candidate, value, True
        if not improved:
            factor = 1 + (factor - 1) / 2
            if factor < 1.002:
                break
    return best


def leave_one_rate_out(samples: Sequence[Sample]) -> list[tuple[Sample, float]]:
    """Predict each rate's samples by constants fitted to all others; return the errors.

    Samples of one node have no rate: they are always in the fit, and are not predicted.

    Raises
    ------
    ValueError
        The samples are of one rate only.
    """
    rates = sorted({sample.bandwidth for sample in samples if sample.bandwidth < math.inf})
    if len(rates) < 2:
        raise ValueError("plan: samples of one rate only; leaving it out leaves nothing to fit")
    found = []
    for rate in rates:
        constants = fit([sample for sample in samples if sample.bandwidth != rate])
        left = [sample for sample in samples if sample.bandwidth == rate]
        found += list(zip(left, errors(constants, left), strict=True))
    return found
