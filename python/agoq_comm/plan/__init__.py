"""A cost model of collectives: how long an algorithm takes on a cluster, and which to take.

From the shell::

    python -m agoq_comm.plan --ranks 64 --per-node 8 --bandwidth 100Gbit --size 64M
"""

from agoq_comm.plan.algorithms import ALGORITHMS, QUANTIZED, Operation
from agoq_comm.plan.calibration import Constants, errors, fit, leave_one_rate_out
from agoq_comm.plan.cluster import Cluster, Compute, Link
from agoq_comm.plan.model import SEGMENTS, Prediction, choose, predict
from agoq_comm.plan.samples import Sample, read_samples
from agoq_comm.plan.sent import Sent, sent_bytes
from agoq_comm.plan.wire import Format

__all__ = [
    "ALGORITHMS",
    "QUANTIZED",
    "SEGMENTS",
    "Cluster",
    "Compute",
    "Constants",
    "Format",
    "Link",
    "Operation",
    "Prediction",
    "Sample",
    "Sent",
    "choose",
    "errors",
    "fit",
    "leave_one_rate_out",
    "predict",
    "read_samples",
    "sent_bytes",
]
