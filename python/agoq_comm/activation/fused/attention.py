"""Attention, whose Q, K, V and output stay exact: that nothing else is held because of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode


class OwnMemory(TorchFunctionMode):
    """Hands Q, K and V to attention in memory of their own, and in the order of their making.

    A V that is a third of what one projection computes for Q, K and V would hold the other two
    parts, beside the Q and K that rotary positions made of them. And the output lies in memory as Q
    does: in the order batch, position, head, its reshaping for the projection that follows is a
    view, which that layer saves for nothing; otherwise it is a second copy.

    All that changes is where numbers are.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Look at the arguments of attention, and pass on all other calls."""
        if func is F.scaled_dot_product_attention and len(args) >= 3 and torch.is_grad_enabled():
            q, k, v = (_own(x, args[:3]) for x in args[:3])
            args = (_heads_inside(q), k, v, *args[3:])
        return func(*args, **(kwargs or {}))


def _own(x: torch.Tensor, saved: tuple[torch.Tensor, ...]) -> torch.Tensor:
    memory = x.untyped_storage()
    together = sum(
        view.numel() * view.itemsize
        for view in saved
        if view.untyped_storage().data_ptr() == memory.data_ptr()
    )
    if not x.requires_grad or together >= memory.nbytes():
        return x
    # Dimensions keep their order in memory.
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    copy = x.permute(order).clone(memory_format=torch.contiguous_format)
    return copy.permute([order.index(dim) for dim in range(x.dim())])


def _heads_inside(q: torch.Tensor) -> torch.Tensor:
    alone = q.numel() * q.itemsize == q.untyped_storage().nbytes()
    if q.dim() != 4 or not q.requires_grad or not alone:
        return q
    return q.transpose(1, 2).contiguous().transpose(1, 2)
