"""Types of the extension module. It takes addresses and names; users call the modules around it."""

# ruff: noqa: N999 - the name of the extension

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, Store, Work

torch_version: str
version: str

class Options(Backend.Options):
    """What a user may choose about a group; equal on all its ranks, which is checked at start-up.

    Fields that are not given come from the AGOQ_* variables, else from the defaults below. All can
    be read and set; a value that cannot be used raises ValueError or TypeError.

    Parameters
    ----------
    format : str
        Element format of encoded numbers: "int8", "fp4", "e2m3", "int4" or "int6".
    block : int
        Elements that share a scale: a power of two from 32 to 1024.
    scale : str
        Type of the scale: "bf16" or "fp32".
    rounding : str
        "nearest", or "stochastic" (unbiased; repeatable by `seed`).
    seed : int
        Of stochastic rounding.
    min_numel : int
        Calls with fewer elements travel exactly.
    quantize : sequence of str
        Which of "all_reduce", "reduce_scatter" and "all_gather" are quantized.
    algorithm : str
        "auto", "flat" or "two_level": first within each node, then between nodes, where there are
        several ranks on a node and several nodes. Results depend on it.
    segment_numel : int
        Elements that travel at once; no result depends on it.
    codec_threads : int
        Threads that encode, sum and decode a call together; 0: this rank's share of the node's
        cores, 4 at most. Ranks may differ, and no result depends on it.
    transport : str
        "auto", "tcp", "shm" or "gloo".
    device_transport : str
        What carries CUDA tensors: "auto" (NCCL where torch has it) or "host" (copies in host memory
        over `transport`; Gloo for exact calls).
    """

    format: str
    block: int
    scale: str
    rounding: str
    seed: int
    min_numel: int
    quantize: tuple[str, ...]
    algorithm: str
    segment_numel: int
    codec_threads: int
    transport: str
    device_transport: str
    def __init__(
        self,
        *,
        format: str = "int8",
        block: int = 128,
        scale: str = "bf16",
        rounding: str = "nearest",
        seed: int = 0,
        min_numel: int = 16384,
        quantize: tuple[str, ...] = ("all_reduce", "reduce_scatter"),
        algorithm: str = "auto",
        segment_numel: int = 61440,
        codec_threads: int = 0,
        transport: str = "auto",
        device_transport: str = "auto",
    ) -> None: ...
    def clone(self) -> Options: ...
    def __copy__(self) -> Options: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> Options: ...
    def __eq__(self, other: object) -> bool: ...

class AgoqBackend(Backend):
    def __init__(
        self,
        *,
        store: Store,
        rank: int,
        size: int,
        options: Options,
        inner: dict[str, Backend],
        gloo: Backend | None,
        device_gloo: Backend | None,
        identities: list[str],
        nodes: list[str],
        make_backend: Callable[[Store, int, int, Options], Backend],
        devices: dict[str, Any] = ...,
    ) -> None: ...
    @property
    def options(self) -> Options: ...
    def inner(self, device: str) -> Backend: ...
    def stats(self) -> dict[str, dict[str, Any]]: ...
    def reset_stats(self) -> None: ...
    def describe(self) -> str: ...
    def serves_rows(self, device: torch.device) -> bool: ...
    def reduce_scatter_rows(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        rows: Sequence[int],
        quantize: bool | None,
        epilogue: RowEpilogue,
        async_op: bool = True,
    ) -> Work | None: ...
    def all_gather_rows(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        rows: Sequence[int],
        quantize: bool | None,
        async_op: bool = True,
    ) -> Work | None: ...
    def all_gather_encoded_rows(
        self,
        output: torch.Tensor,
        encoded: torch.Tensor,
        rows: Sequence[int],
        async_op: bool = True,
    ) -> Work | None: ...
    def finish_rows(
        self, values: torch.Tensor, output: torch.Tensor | None, epilogue: RowEpilogue
    ) -> None: ...

class RowEpilogue:
    """What becomes of finished rows: residual added, norm if there is an epsilon, encoding."""

    def __init__(
        self,
        *,
        residual: torch.Tensor | None = None,
        weight: torch.Tensor | None = None,
        epsilon: float | None = None,
        normed: torch.Tensor | None = None,
        encoded: torch.Tensor | None = None,
        rounding: Rounding = ...,
    ) -> None: ...

def handshake(
    *, store: Store, rank: int, size: int, options: Options
) -> tuple[list[str], list[str]]: ...
def carries_over_gloo(transport: str) -> bool: ...

class Rounding:
    stochastic: bool
    seed: int
    call: int
    rank: int
    stage: int
    first_element: int
    def __init__(self) -> None: ...

class Codec:
    def __init__(self, element: str, block: int, scale: str, isa: str | None = None) -> None: ...
    @property
    def format(self) -> str: ...
    @property
    def isa(self) -> str: ...
    def encoded_bytes(self, count: int) -> int: ...
    def scale_offset(self, count: int) -> int: ...
    def encoded_rows_bytes(self, rows: int, width: int) -> int: ...
    def encode_rows(
        self, values: int, type: str, rows: int, width: int, encoded: int, rounding: Rounding
    ) -> None: ...
    def decode_rows(self, encoded: int, rows: int, width: int, values: int, type: str) -> None: ...
    def encode(
        self, values: int, type: str, count: int, encoded: int, rounding: Rounding
    ) -> None: ...
    def decode(self, encoded: int, count: int, values: int, type: str) -> None: ...
    def decode_accumulate(self, encoded: int, count: int, accumulator: int) -> None: ...
    def sum_decode(
        self,
        pieces: list[int],
        own: int,
        own_type: str,
        own_rank: int,
        count: int,
        factor: float,
        values: int,
        type: str,
    ) -> None: ...
    def sum_encode(
        self,
        pieces: list[int],
        own: int,
        own_type: str,
        own_rank: int,
        count: int,
        factor: float,
        encoded: int,
        values: int,
        type: str,
        rounding: Rounding,
    ) -> None: ...

class CudaCodec:
    """Functions of `Codec` on device addresses and one stream. Nothing waits for the device."""

    def __init__(self, element: str, block: int, scale: str, stream: int) -> None: ...
    def encode(
        self, values: int, type: str, count: int, encoded: int, rounding: Rounding
    ) -> None: ...
    def decode(self, encoded: int, count: int, values: int, type: str) -> None: ...
    def decode_accumulate(self, encoded: int, count: int, accumulator: int) -> None: ...
    def sum_decode(
        self,
        pieces: list[int],
        own: int,
        own_type: str,
        own_rank: int,
        count: int,
        factor: float,
        values: int,
        type: str,
    ) -> None: ...
    def sum_encode(
        self,
        pieces: list[int],
        own: int,
        own_type: str,
        own_rank: int,
        count: int,
        factor: float,
        encoded: int,
        values: int,
        type: str,
        rounding: Rounding,
    ) -> None: ...

def supported_cpu_isas() -> list[str]: ...

class Communicator:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def all_reduce(
        self,
        source: int,
        result: int,
        count: int,
        type: str,
        op: str,
        timeout: timedelta | None,
        factor: float,
    ) -> None: ...
    def reduce_scatter(
        self,
        sources: list[int],
        counts: list[int],
        result: int,
        type: str,
        op: str,
        timeout: timedelta | None,
        factor: float,
    ) -> None: ...
    def all_gather(
        self,
        source: int,
        results: list[int],
        counts: list[int],
        type: str,
        timeout: timedelta | None,
    ) -> None: ...
    def stats(self) -> dict[str, dict[str, Any]]: ...
    def reset_stats(self) -> None: ...
    def describe(self) -> str: ...
    def abort(self, reason: str) -> None: ...

def make_inproc_communicators(
    size: int, options: Options, topology: Sequence[int] | None
) -> list[Communicator]: ...
def make_communicator(
    *, store: Store, rank: int, size: int, options: Options, topology: Sequence[int] | None
) -> Communicator: ...
