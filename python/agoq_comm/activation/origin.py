"""Where a saved tensor came from, as far as autograd's graph tells."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

# What neither computes nor mixes elements.
_SAME_ELEMENTS = re.compile(
    r"^(T|Transpose|Permute|View|UnsafeView|ReshapeAlias|Expand|Slice|Select|Split|Unbind|Squeeze"
    r"|Unsqueeze|AsStrided|Narrow|Alias|Clone|ToCopy|Detach|Contiguous)Backward\d+$"
)
_DEPTH = 8
LEAF = "Leaf"


def origin_of(tensor: torch.Tensor) -> tuple[str, torch.Tensor | None]:
    """Look through views, copies and casts.

    Returns
    -------
    name : str
        Of the operation that computed the elements, e.g. ``"LogSoftmax"``; `LEAF` if there is
        none in the graph.
    leaf : torch.Tensor or None
        The leaf of the graph that the elements are those of, such as a weight that autocast cast.
    """
    node: Any = tensor.grad_fn
    for _ in range(_DEPTH):
        if node is None:
            return LEAF, None
        name = node.name()
        following = node.next_functions
        if not _SAME_ELEMENTS.match(name) or len(following) != 1:
            leaf = getattr(node, "variable", None)
            return (LEAF, leaf) if leaf is not None else (name.partition("Backward")[0], None)
        node = following[0][0]
    return LEAF, None


def looks_like_weight(tensor: torch.Tensor, module: nn.Module | None) -> bool:
    """Tell whether it may be a copy of a frozen weight of the module, whose graph tells nothing."""
    if module is None or tensor.requires_grad or tensor.dim() < 2:
        return False
    shapes = {tuple(weight.shape) for weight in module.parameters(recurse=False)}
    shape = tuple(tensor.shape)
    return shape in shapes or (*shape[:-2], shape[-1], shape[-2]) in shapes
