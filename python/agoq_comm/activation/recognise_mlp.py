"""Which modules are activation functions and MLPs, and what they compute."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from agoq_comm.activation.fused.layers import MlpForm
from agoq_comm.activation.fused.linear import conv1d
from agoq_comm.activation.fused.mlp import ACTIVATIONS
from agoq_comm.activation.recognise_probe import (
    Calls,
    StandIn,
    laboratory,
    own_forward,
    replaced,
    reseed,
    same,
)

_ACTIVATION_NAME = re.compile(r"silu|swish|gelu|relu|activation", re.IGNORECASE)
_ATTENTION = {F.scaled_dot_product_attention, F.softmax, torch.softmax, torch.Tensor.softmax}
_TYPES = (torch.float32, torch.bfloat16)
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_KNOWN = ", ".join(ACTIVATIONS)
_CONV1D = {"weight", "bias"}


def activation_of(module: nn.Module) -> tuple[str, bool] | str | None:
    """Say which activation function a module is, or why it is none that is known.

    Returns
    -------
    tuple of str and bool, or str, or None
        A key of `ACTIVATIONS`, and False where the function works in place; or a reason; None if
        it looks like none.
    """
    if (
        next(module.parameters(), None) is not None
        or next(module.children(), None) is not None
        or not _ACTIVATION_NAME.search(type(module).__name__)
    ):
        return None
    try:
        with laboratory(), replaced(module):
            # Far away too: what limits its numbers is another function.
            x = torch.cat([torch.linspace(-far, far, 997) for far in (6.0, 200.0)])
            with Calls() as calls:
                outputs = [own_forward(module, x.to(dtype, copy=True)) for dtype in _TYPES]
            kinds = {}
            for kind, act in ACTIVATIONS.items():
                with Calls() as others:
                    found = [act.forward(x.to(dtype)) for dtype in _TYPES]
                if all(map(same, outputs, found)):
                    kinds[kind] = calls.unlike(others)
    except Exception as error:
        return f"calling it with one tensor failed: {type(error).__name__}: {error}"
    if not kinds:
        return f"its output is that of none of {_KNOWN}, to the bit"
    return min(kinds, key=lambda kind: kinds[kind]), not getattr(module, "inplace", False)


def linear_sizes(module: nn.Module) -> tuple[int, int] | None:
    """Return the input and output features of a linear layer, whatever it does with them."""
    for names in (("in_features", "out_features"), ("nx", "nf")):
        sizes = tuple(getattr(module, name, None) for name in names)
        if isinstance(sizes[0], int) and isinstance(sizes[1], int):
            return sizes[0], sizes[1]
    return None


def is_conv1d(module: nn.Module) -> bool:
    """Tell Hugging Face's Conv1D: a linear layer with its weight the other way round."""
    sizes = linear_sizes(module)
    if type(module).__name__ != "Conv1D" or sizes is None or set(module._parameters) != _CONV1D:
        return False
    with laboratory():
        weight, bias, x = torch.randn(sizes), torch.randn(sizes[1]), torch.randn(2, 3, sizes[0])
        with replaced(module, parameters={"weight": weight, "bias": bias}):
            return same(own_forward(module, x), conv1d(x, weight, bias))


def mlp_of(module: nn.Module) -> MlpForm | str | None:
    """Say what an MLP computes, or why that is not known; None if it looks like none."""
    if isinstance(module, CONTAINERS):
        return None
    linears = {name: s for name, m in module.named_children() if (s := linear_sizes(m))}
    acts = {name: k for name, m in module.named_children() if (k := activation_of(m)) is not None}
    dropouts = [name for name, m in module.named_children() if isinstance(m, nn.Dropout)]
    rest = [m for m in module.children() if not isinstance(m, nn.Identity)]
    if len(rest) != len(linears) + len(acts) + len(dropouts) or len(linears) not in (2, 3):
        return None
    if len(acts) > 1 or len(dropouts) > 2:
        return None
    forms = list(_forms(linears, acts, dropouts))
    if not forms:
        return None
    with laboratory():
        stand_ins = {name: StandIn(*sizes) for name, sizes in linears.items()}
        results: list[MlpForm | str | None] = []
        # Two layers have the sizes of an MLP in either order, as a rule.
        for width in dict.fromkeys(stand_ins[form.first[0]].in_features for form in forms):
            fitting = [form for form in forms if stand_ins[form.first[0]].in_features == width]
            with replaced(module, children=stand_ins):
                x = torch.randn(2, 3, width) * torch.tensor([[1.0], [10.0], [100.0]])
                results.append(_probe(module, fitting, x))
    found = next((form for form in results if isinstance(form, MlpForm)), None)
    return found or (None if None in results else results[0])


def _probe(module: nn.Module, forms: list[MlpForm], x: torch.Tensor) -> MlpForm | str | None:
    unlike: dict[MlpForm, int] = {}
    try:
        reseed()
        buffers = dict(module._buffers)
        with Calls() as calls:
            output = own_forward(module, x.clone())
        changed = any(
            now is not buffers.get(name) or (now is not None and now._version > 0)
            for name, now in module._buffers.items()
        )
        for form in forms:
            reseed()
            with Calls() as others:
                found = form.run(module, x)
            if same(output, found):
                unlike[form] = calls.unlike(others)
    except TypeError:
        return None  # It wants other arguments than one tensor.
    except Exception as error:
        failed = f"calling it with one tensor failed: {type(error).__name__}: {error}"
        return None if calls.made & _ATTENTION else failed
    if unlike and changed:
        return "it changes buffers of its own"
    if unlike:
        return min(unlike, key=lambda form: unlike[form])
    if calls.made & _ATTENTION:
        return None
    return (
        "its linear layers have the sizes of an MLP, but its output in training, with any "
        "parameters and buffers of its own, is that of none that is known, to the bit: "
        f"last(f(first(x))), or last(f(gate(x)) * up(x)), with f one of {_KNOWN}"
    )


def _forms(linears: dict[str, Any], acts: dict[str, Any], dropouts: list[str]) -> Iterator[MlpForm]:
    """Yield all that an MLP with these modules may compute."""
    kinds = [k[0] for k in acts.values() if isinstance(k, tuple)] if acts else list(ACTIVATIONS)
    act = next(iter(acts), None)
    places = list(_places(dropouts))
    for names in itertools.permutations(linears):
        *first, last = names
        sizes = {linears[name] for name in first}
        if len(sizes) != 1:
            continue
        ((_, wide),) = sizes
        narrow = linears[last][0]
        gates: tuple[int | None, ...]
        if len(first) == 2 and wide == narrow:
            gates = (None,)
        elif len(first) == 1 and wide == 2 * narrow:
            gates = (0, 1)
        elif len(first) == 1 and wide == narrow and not acts:
            gates = (None,)
        else:
            continue
        for kind, gate, (inner, outer) in itertools.product(kinds, gates, places):
            yield MlpForm(kind, tuple(first), last, gate, act, inner, outer)


def _places(dropouts: list[str]) -> Iterable[tuple[str | None, str | None]]:
    if not dropouts:
        return [(None, None)]
    if len(dropouts) == 1:
        return [(None, dropouts[0]), (dropouts[0], None), (dropouts[0], dropouts[0])]
    return itertools.permutations(dropouts, 2)
