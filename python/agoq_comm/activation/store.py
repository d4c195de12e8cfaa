"""Saved tensors as they are held from the forward to the backward pass: each content once.

A content is told by its storage, place, shape, strides, dtype and version. Storages are identified
while they live, by a weak reference that also keeps their address from being used again.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from agoq_comm.activation.accounting import Accounting
from agoq_comm.activation.formats import Format
from agoq_comm.activation.layout import Layout
from agoq_comm.activation.packed import Packed, dequantize, quantize


def weak_reference(storage: torch.UntypedStorage) -> StorageWeakRef:
    """Refer to a storage without keeping its memory, only its address."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


class Content:
    """Something that is held, and counted as long as anyone refers to it.

    Parameters
    ----------
    held : Packed or torch.Tensor or None
        Codes, or exact elements; None where `Saved` itself keeps the storage alive.
    storage : torch.UntypedStorage
        Where the elements came from.
    """

    __slots__ = ("__weakref__", "_accounting", "_origin", "held", "original", "stored")

    def __init__(
        self,
        held: Packed | torch.Tensor | None,
        storage: torch.UntypedStorage,
        original: int,
        stored: int,
        accounting: Accounting,
    ) -> None:
        self.held = held
        self.original, self.stored = original, stored
        self._origin = weak_reference(storage)
        self._accounting = accounting
        accounting.stored(original, stored)

    def __del__(self) -> None:
        self._accounting.freed(self.original, self.stored)

    @property
    def scale_bytes(self) -> int:
        """Bytes of `stored` that are scales."""
        return self.held.scale_nbytes if isinstance(self.held, Packed) else 0

    def elements(self) -> torch.Tensor:
        """Return the elements, contiguous, in the order in which `Layout.take` gave them."""
        if isinstance(self.held, Packed):
            return dequantize(self.held)
        assert self.held is not None
        return self.held


class Saved:
    """What autograd holds in place of a tensor.

    Parameters
    ----------
    tensor : torch.Tensor
        What is saved.
    content : Content or None
        None for what is there anyway.
    layout : Layout or None
        How to make the tensor of the content; None to hold on to the tensor's own memory.
    module : str
        For the error that tells of a change in place.
    """

    __slots__ = ("_accounting", "_content", "_layout", "_module", "_tensor", "_type", "_version")

    def __init__(
        self,
        tensor: torch.Tensor,
        content: Content | None,
        layout: Layout | None,
        module: str,
        accounting: Accounting,
    ) -> None:
        # Never the tensor itself: one that the same operation returns would keep its graph alive.
        self._tensor = tensor.detach()
        self._version = self._tensor._version
        if layout is not None:
            # Without memory, but the counter of changes in place stays that of the original.
            self._tensor.data = tensor.new_empty(0)
        self._content = content
        self._layout = layout
        self._module = module
        self._type = (tensor.type(), tuple(tensor.shape))
        self._accounting = accounting

    def __del__(self) -> None:
        self._accounting.forgotten()

    def restore(self) -> torch.Tensor:
        """Return the tensor, or raise as autograd does if it was changed in place since."""
        if self._tensor._version != self._version:
            name, shape = self._type
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: [{name} {list(shape)}], which was saved in module "
                f"'{self._module}', is at version {self._tensor._version}; expected version "
                f"{self._version} instead. Hint: enable anomaly detection to find the operation "
                "that failed to compute its gradient, with "
                "torch.autograd.set_detect_anomaly(True)."
            )
        if self._layout is None:
            return self._tensor
        assert self._content is not None
        return self._layout.put(self._content.elements())


class Store:
    """Finds or makes the content of a tensor. Safe for concurrent use by threads."""

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting
        # Re-entrant, since the collector may free a content while its thread is in here.
        self._lock = threading.RLock()
        self._storages: weakref.WeakValueDictionary[int, Content] = weakref.WeakValueDictionary()
        self._elements: weakref.WeakValueDictionary[Any, Content] = weakref.WeakValueDictionary()

    def holds_storage(self, tensor: torch.Tensor) -> bool:
        """Tell whether the memory of the tensor is held as it is: then its views cost nothing."""
        return tensor.untyped_storage()._cdata in self._storages

    def storage(self, tensor: torch.Tensor) -> tuple[Content, bool]:
        """Count the whole storage of a tensor that is held as it is; True where it was already."""
        storage = tensor.untyped_storage()
        with self._lock:
            content = self._storages.get(storage._cdata)
            if content is not None:
                return content, True
            size = storage.nbytes()
            content = Content(None, storage, size, size, self._accounting)
            self._storages[storage._cdata] = content
            return content, False

    def elements(
        self, tensor: torch.Tensor, layout: Layout, format: Format | None
    ) -> tuple[Content, bool]:
        """Quantize the elements, or copy them exactly; True where that was done already."""
        storage = tensor.untyped_storage()
        key = (storage._cdata, tensor._version, format, *layout.key(tensor))
        with self._lock:
            content = self._elements.get(key)
        if content is not None:
            return content, True
        elements = layout.take(tensor.detach())
        size = layout.numel * tensor.dtype.itemsize
        if format is None:
            copy = elements.clone(memory_format=torch.contiguous_format)
            content = Content(copy, storage, size, size, self._accounting)
        else:
            packed = quantize(elements, format)
            content = Content(packed, storage, size, packed.nbytes, self._accounting)
        with self._lock:
            # Two threads that save the same tensor at the same moment each have their own.
            self._elements[key] = content
        return content, False
