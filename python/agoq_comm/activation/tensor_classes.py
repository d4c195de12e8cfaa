"""What part a saved tensor plays in a model, told from the modules that were running.

Autograd does not say which operation saves a tensor. The innermost module that was running does, as
far as a policy needs it: a norm saves the norm's input, a linear layer its own, attention Q, K, V
and its output. Few operations are told by what they made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import nn

# In the order of a layer. "loss" is what comes after the logits, in no module or in the one of a
# Hugging Face model that computes the loss; "other" is all that is not recognised.
TENSOR_CLASSES = ("embedding", "norm", "attention", "linear", "mlp", "loss", "other")

_BY_NAME = (
    ("norm", re.compile(r"Norm(\d+d)?$|Norm[A-Z]|^LayerNorm|RMSNorm")),
    ("embedding", re.compile(r"Embedding(s|Bag)?$")),
    ("linear", re.compile(r"Linear|^Conv\d?d?D?$")),
    ("mlp", re.compile(r"MLP|Mlp|FeedForward|FFN|FF$|Act\w*Dense$|Intermediate$|Glu$|GLU")),
    ("mlp", re.compile(r"^(SiLU|GELU|ReLU|Mish|SELU|ELU)$|Activation$")),
    ("attention", re.compile(r"Attention|Attn")),
    ("loss", re.compile(r"For[A-Z]\w+$|Loss$|CrossEntropy")),
)
# Whoever saves these: attention's own functions, and a loss in the model's own forward.
_BY_OPERATION = (
    ("attention", re.compile(r"ScaledDotProduct|Softmax$")),
    ("loss", re.compile(r"LogSoftmax|NllLoss")),
)
# Names of the projection that reads the output of attention, in the models there are.
_OUTPUT_PROJECTIONS = {
    "c_proj", "dense", "fc_out", "linear_proj", "o", "o_proj", "out", "out_lin", "out_proj", "proj",
    "to_out", "wo",
}  # fmt: skip


def class_of_module(kind: type) -> str:
    """Name the tensor class of a module's own tensors, by the name of its class or of a base."""
    for base in kind.__mro__:
        if base is nn.Module:
            break
        for tensor_class, pattern in _BY_NAME:
            if pattern.search(base.__name__):
                return tensor_class
    return "other"


def classify(module: str, kinds: Sequence[type], operation: str = "") -> str:
    """Name the tensor class of what is saved while modules run.

    Parameters
    ----------
    module : str
        Qualified name of the innermost one.
    kinds : sequence of type
        Classes of the running modules, outermost first; none for what runs outside of the model.
    operation : str
        The one that computed the tensor, by autograd's name; empty if unknown.

    Returns
    -------
    str
        One of `TENSOR_CLASSES`.
    """
    for tensor_class, pattern in _BY_OPERATION:
        if pattern.match(operation):
            return tensor_class
    if not kinds:
        return "loss"
    own = class_of_module(kinds[-1])
    # A dropout or a container plays the part of the module around it, the whole model's excepted.
    around = [class_of_module(kind) for kind in reversed(kinds[:-1])]
    enclosing = next((kind for kind in around if kind not in ("other", "loss")), "other")
    if own == "linear" and enclosing == "attention":
        return "attention" if _is_output_projection(module) else "linear"
    if own == "other":
        return enclosing
    return own


def _is_output_projection(module: str) -> bool:
    parts = [part for part in module.split(".") if not part.isdecimal()]
    return bool(parts) and parts[-1] in _OUTPUT_PROJECTIONS
