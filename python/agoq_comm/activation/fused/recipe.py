"""How a tensor that is not stored is computed again from what is.

The output of a fused layer carries a `Recipe`. A fused linear layer that reads the output has
autograd save the recipe's sources in place of the output: few bytes, and the same ones for all that
read it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import torch

from agoq_comm.activation.formats import Format
from agoq_comm.activation.packed import Packed, dequantize, quantize

_ATTRIBUTE = "_agoq_recipe"


def _after_backward(call: Callable[[], None]) -> None:
    """Call at the end of the backward pass that is running, whatever else it computes."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


class Witness:
    """Remembers the version of a tensor, without its memory, and raises if it was changed since."""

    def __init__(self, tensor: torch.Tensor) -> None:
        alias = tensor.detach()
        self._version = alias._version
        # The counter of changes in place stays that of the original.
        alias.data = tensor.new_empty(0)
        self._alias = alias
        self._type = (tensor.type(), list(tensor.shape))

    def unchanged(self) -> bool:
        """Tell whether the tensor is what it was."""
        return self._alias._version == self._version

    def check(self) -> None:
        """Raise as autograd does for a tensor that it saved."""
        if not self.unchanged():
            name, shape = self._type
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: [{name} {shape}], of which a fused layer keeps a quantized "
                f"copy, is at version {self._alias._version}; expected version {self._version} "
                "instead. Hint: enable anomaly detection to find the operation that failed to "
                "compute its gradient, with torch.autograd.set_detect_anomaly(True)."
            )


def _witness(tensor: torch.Tensor) -> Witness | None:
    # Not while a compiler traces; see `_version`.
    return None if torch.compiler.is_compiling() else Witness(tensor)


# A compiler traces with tensors that count changes in place, and makes a graph that has none. The
# number reaches it as a size, which is all that is looked at: being unused, it leaves the graph.
@torch.library.custom_op("agoq::version", mutates_args=())
def _version(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x._version)


def _version_like(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x._version)


torch.library.register_fake("agoq::version", _version_like)


class Stored:
    """A quantized tensor without its bytes, which autograd saves.

    Parameters
    ----------
    packed : Packed
        The tensor with its bytes.
    original : torch.Tensor, optional
        What was quantized, if a change of it in place is to be an error.
    """

    def __init__(self, packed: Packed, original: torch.Tensor | None) -> None:
        self.shape, self.dtype, self.format = packed.shape, packed.dtype, packed.format
        self._witness = None if original is None else _witness(original)
        self._decoded: torch.Tensor | None = None

    def decode(self, data: torch.Tensor) -> torch.Tensor:
        """Return the numbers, which nobody may change."""
        if self._decoded is not None:
            return self._decoded
        if self._witness is not None:
            self._witness.check()
        return dequantize(Packed(data, self.shape, self.dtype, self.format))

    def decode_early(self, data: torch.Tensor) -> torch.Tensor:
        """Return the numbers, and keep them for the backward pass of the layer that stored them."""
        decoded = self.decode(data)
        if not torch.compiler.is_compiling() and self._decoded is None:
            self._decoded = decoded
            _after_backward(self._forget)  # That backward pass may be of a part of the graph.
        return decoded

    def decode_last(self, data: torch.Tensor) -> torch.Tensor:
        """Return the numbers, and let go of them: the backward pass of that layer has come."""
        decoded = self.decode(data)
        if not torch.compiler.is_compiling():
            self._forget()
        return decoded

    def _forget(self) -> None:
        self._decoded = None


def store(x: torch.Tensor, fmt: Format, watch: bool = True) -> tuple[Stored, torch.Tensor]:
    """Quantize; the bytes are for `save_for_backward`.

    The codes stay right whatever happens to `x`. It is watched where autograd would have saved `x`
    itself, so that what was an error stays one, and what was none becomes none.
    """
    packed = quantize(x, fmt)
    return Stored(packed, x if watch else None), packed.data


class Method(abc.ABC):
    """Computes a tensor from a recipe's sources; shared by all that read the tensor.

    It holds no tensor between the forward and the backward pass. In the backward pass the readers
    of one tensor follow each other: the first computes it, the last one lets it go, or the end of
    the pass where not all of them are in it.

    Attributes
    ----------
    stored_as : Format or None
        Of the tensor itself; None if it is computed from others.
    """

    stored_as: Format | None = None

    def __init__(self) -> None:
        self._readers = self._served = 0
        self._value: torch.Tensor | None = None
        self._witness: Witness | None = None

    @abc.abstractmethod
    def compute(self, *sources: Any) -> torch.Tensor:
        """Return the tensor."""

    def watch(self, output: torch.Tensor) -> None:
        """Remember what the readers see."""
        self._witness = _witness(output)

    def unchanged(self) -> bool:
        """Tell whether the tensor is still what the sources make."""
        return self._witness is None or self._witness.unchanged()

    def add_reader(self) -> None:
        """Expect one more call of `take`."""
        if not torch.compiler.is_compiling():
            self._readers += 1

    def take(self, *sources: Any) -> torch.Tensor:
        """Return the tensor to a reader, which must not change it."""
        if torch.compiler.is_compiling():
            return self.compute(*sources)
        if self._witness is not None:
            self._witness.check()
        value = self._value
        if value is None:
            value = self.compute(*sources)
            _after_backward(self.forget)
        self._served += 1
        self._value = value if self._served < self._readers else None
        if self._served >= self._readers:
            self._served = 0
        return value

    def forget(self) -> None:
        """Let go of what was computed: no reader is left in this backward pass."""
        if not torch.compiler.is_compiling():
            self._value, self._served = None, 0


class AsItIs(Method):
    """The tensor is what is stored."""

    def __init__(self, stored: Stored) -> None:
        super().__init__()
        self._stored, self.stored_as = stored, stored.format

    def compute(self, *sources: Any) -> torch.Tensor:
        """Decode."""
        return self._stored.decode(sources[0])


class Recipe:
    """Sources, which readers have autograd save, and what makes the tensor of them.

    Parameters
    ----------
    method : Method
        Makes the tensor.
    sources : tuple of torch.Tensor or None
        Its arguments, none of which requires a gradient.
    """

    def __init__(self, method: Method, sources: tuple[torch.Tensor | None, ...]) -> None:
        self.method = method
        self.sources = sources


def attach(output: torch.Tensor, method: Method, *sources: torch.Tensor | None) -> torch.Tensor:
    """Let `output` carry a recipe, and return it."""
    method.watch(output)
    setattr(output, _ATTRIBUTE, Recipe(method, sources))
    return output


def recipe_of(x: torch.Tensor) -> Recipe | None:
    """Return the recipe of a tensor, or of the tensor that it is a reshaped view of.

    None for one that was changed in place since: it is not what the recipe makes.
    """
    recipe: Recipe | None = getattr(x, _ATTRIBUTE, None)
    if torch.compiler.is_compiling():
        return recipe if recipe is None or _version(x.detach()).numel() == 0 else None
    if recipe is None:
        base = x._base
        # Both contiguous, or their elements may be in another order.
        alike = base is not None and base.is_contiguous() and x.is_contiguous()
        if base is not None and alike and base.numel() == x.numel():
            recipe = getattr(base, _ATTRIBUTE, None)
    return recipe if recipe is not None and recipe.method.unchanged() else None
