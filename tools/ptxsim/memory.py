"""Global memory: buffers at addresses, and who touched which byte."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Threads = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_NOBODY = -1
_SEVERAL = -2


class FaultError(Exception):
    """A kernel touched memory in a way that a device would punish, or leave to chance."""


class Buffer:
    """Bytes at an address of the simulated device.

    Parameters
    ----------
    contents : ndarray
        Copied; the buffer is as long.
    base : int
        Address of the first byte.
    """

    def __init__(self, contents: npt.NDArray, base: int) -> None:
        self.bytes: Bytes = np.frombuffer(contents.tobytes(), np.uint8).copy()
        self.base = base
        self.reset()

    def reset(self) -> None:
        """Forget who loaded and stored what: a kernel ends."""
        self.stored_by = np.full(self.bytes.size, _NOBODY, np.int64)
        self.loaded_by = np.full(self.bytes.size, _NOBODY, np.int64)

    @property
    def is_written(self) -> bool:
        """Whether the last kernel stored every byte."""
        return bool((self.stored_by != _NOBODY).all())


class Memory:
    """All buffers, with a gap between neighbours."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._next = 0x7F0000000000

    def add(self, contents: npt.NDArray, misalignment: int = 0) -> Buffer:
        """Add a buffer at `misalignment` bytes from a multiple of 256."""
        buffer = Buffer(contents, self._next + misalignment)
        self._next += (buffer.bytes.size + misalignment + 8191) // 256 * 256
        self.buffers.append(buffer)
        return buffer

    def load(self, addresses: Threads, size: int, threads: Threads) -> Bytes:
        """Return `size` bytes from each thread's address, one row a thread."""
        rows = np.empty((addresses.size, size), np.uint8)
        for chosen, buffer, offsets in self._places(addresses, size, threads, "load"):
            me = threads[chosen][:, None]
            stored_by = buffer.stored_by[offsets]
            if ((stored_by != _NOBODY) & (stored_by != me)).any():
                raise FaultError("a thread loads what another one stores")
            before = buffer.loaded_by[offsets]
            other = (before != _NOBODY) & (before != me)
            buffer.loaded_by[offsets] = np.where(other, _SEVERAL, me)
            # Threads that load one byte at the same time have overwritten each other's mark.
            shared = buffer.loaded_by[offsets] != me
            buffer.loaded_by[offsets[shared]] = _SEVERAL
            rows[chosen] = buffer.bytes[offsets]
        return rows

    def store(self, addresses: Threads, rows: Bytes, threads: Threads) -> None:
        """Store each thread's row of bytes at its address."""
        for chosen, buffer, offsets in self._places(addresses, rows.shape[1], threads, "store"):
            me = threads[chosen][:, None]
            loaded_by = buffer.loaded_by[offsets]
            if ((loaded_by != _NOBODY) & (loaded_by != me)).any():
                raise FaultError("a thread stores what another one loads")
            if (buffer.stored_by[offsets] != _NOBODY).any():
                raise FaultError("a byte is stored twice")
            buffer.stored_by[offsets] = me
            if (buffer.stored_by[offsets] != me).any():
                raise FaultError("a byte is stored twice")
            buffer.bytes[offsets] = rows[chosen]

    def _places(
        self, addresses: Threads, size: int, threads: Threads, what: str
    ) -> list[tuple[npt.NDArray[np.bool_], Buffer, npt.NDArray[np.int64]]]:
        """Split an access by the buffers that it falls into."""
        misaligned = addresses % size != 0
        if misaligned.any():
            raise FaultError(
                f"misaligned {what} of {size} bytes by thread {threads[misaligned][0]}"
            )
        bases = np.array([buffer.base for buffer in self.buffers], np.int64)
        owner = np.searchsorted(bases, addresses, "right") - 1
        places = []
        for index in np.unique(owner):
            chosen = owner == index
            buffer = self.buffers[index]
            offsets = addresses[chosen] - buffer.base
            outside = (offsets < 0) | (offsets + size > buffer.bytes.size)
            if index < 0 or outside.any():
                raise FaultError(f"{what} out of bounds by thread {threads[chosen][outside][0]}")
            places.append((chosen, buffer, offsets[:, None] + np.arange(size)))
        return places
