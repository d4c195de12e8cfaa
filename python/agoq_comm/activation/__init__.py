"""Activations in about 4 bits between the forward and the backward pass.

`compress` stores what autograd saves of any model as `Policy` says; `wrap_` replaces layers by ones
that need not save as much. The method is that of AGoQ (arXiv 2605.00539).
"""

from agoq_comm.activation.accounting import Accounting, Record
from agoq_comm.activation.compress import Compression, compress
from agoq_comm.activation.formats import Format
from agoq_comm.activation.packed import Packed, dequantize, quantize
from agoq_comm.activation.policy import Decision, Policy, Rule, Site
from agoq_comm.activation.recognise import NotRecognised
from agoq_comm.activation.wrap import unwrap_, wrap_

__all__ = [
    "Accounting",
    "Compression",
    "Decision",
    "Format",
    "NotRecognised",
    "Packed",
    "Policy",
    "Record",
    "Rule",
    "Site",
    "compress",
    "dequantize",
    "quantize",
    "unwrap_",
    "wrap_",
]
