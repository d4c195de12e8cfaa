"""What travels quantized: activations on the way forward, gradients on the way back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class QuantizationPolicy:
    """Each direction on its own. How a number is encoded is the group's choice, by its options.

    Parameters
    ----------
    forward : bool
        Activations travel quantized; exactly where it is False.
    backward : bool
        The same for gradients.
    """

    forward: bool = True
    backward: bool = True


EXACT = QuantizationPolicy(forward=False, backward=False)

_default = QuantizationPolicy()


def default_policy() -> QuantizationPolicy:
    """Return the policy of calls that name none."""
    return _default


def set_default_policy(policy: QuantizationPolicy) -> None:
    """Choose the policy of calls that name none, for the whole process."""
    global _default
    _default = policy


@contextlib.contextmanager
def use_policy(policy: QuantizationPolicy) -> Iterator[None]:
    """Choose the default policy for the length of a ``with`` block.

    It is read when a function is called on the way forward; the way back keeps what was read then.
    Activation checkpointing calls functions again in the backward pass, which so belongs inside.
    """
    before = _default
    set_default_policy(policy)
    try:
        yield
    finally:
        set_default_policy(before)
