"""What only a GPU can show of the torch backend; tools/device_check.sh runs it.

One GPU is enough: a group of one rank over NCCL, and two ranks that share the GPU over host memory.
Two ranks on one GPU over NCCL need an NCCL from 2.30 on. Prints a line for each check and ends with
"N passed, N failed".
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import agoq_comm
from agoq_comm import activation
from agoq_comm import sequence_parallel as sp

# What the fake device of the Python tests is checked by as well.
sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from programs import sequence_cases

COUNTS = (16_384, 50_003, 4_000_001)
SEQUENCE = 131  # Rows of a rank: enough of them to be quantized.
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
QUANTIZED = ("all_reduce", "reduce_scatter", "all_gather")
MULTI_RANK_NCCL = (2, 30)


def data(rank: int, count: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randn(count, generator=generator).to(dtype)


def equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def same_as_on_the_cpu(rank: int, size: int) -> None:
    """Every quantized collective gives the bits that it gives for CPU tensors."""
    for dtype in DTYPES:
        for count in COUNTS:
            x = data(rank, count, dtype)
            on_gpu = x.cuda()
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                expected, result = x.clone(), on_gpu.clone()
                dist.all_reduce(expected, op)
                dist.all_reduce(result, op)
                equal(result, expected)
            whole = torch.empty(count * size, dtype=dtype)
            on_gpu_whole = whole.cuda()
            dist.all_gather_into_tensor(whole, x)
            dist.all_gather_into_tensor(on_gpu_whole, on_gpu)
            equal(on_gpu_whole, whole)
            piece, on_gpu_piece = torch.empty_like(x), torch.empty_like(on_gpu)
            dist.reduce_scatter_tensor(piece, whole)
            dist.reduce_scatter_tensor(on_gpu_piece, on_gpu_whole)
            equal(on_gpu_piece, piece)


def the_host_does_not_wait(rank: int, size: int) -> None:
    """A call returns while a kernel before it still runs, and follows that kernel."""
    x = data(rank, COUNTS[-1])
    on_gpu = torch.zeros_like(x, device="cuda")
    dist.all_reduce(on_gpu)
    source = x.cuda()
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)
    on_gpu.copy_(source)
    begun = time.monotonic()
    work = dist.all_reduce(on_gpu, async_op=True)
    work.wait()
    assert time.monotonic() - begun < 0.3, "the call waited for the device"
    expected = x.clone()
    dist.all_reduce(expected)
    equal(on_gpu, expected)


def many_calls_in_flight(rank: int, size: int) -> None:
    """Calls share one workspace, and inputs may go away at once."""
    for _ in range(20):
        inputs = [data(rank, COUNTS[1] + i, seed=i) for i in range(8)]
        results = [x.cuda() for x in inputs]
        works = [dist.all_reduce(x, async_op=True) for x in results]
        dist.all_gather_into_tensor(
            torch.empty(size * COUNTS[1], device="cuda"), data(rank, COUNTS[1]).cuda()
        )
        for work in works:
            work.wait()
        for x, result in zip(inputs, results, strict=True):
            dist.all_reduce(x)
            equal(result, x)


def a_graph_reads_its_inputs_anew(rank: int, size: int) -> None:
    """Capture after one call outside, replay with changed inputs."""
    x = data(rank, COUNTS[1]).cuda()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    for seed in (1, 2, 3):
        fresh = data(rank, COUNTS[1], seed=seed)
        x.copy_(fresh)
        graph.replay()
        expected = fresh.clone()
        dist.all_reduce(expected)
        equal(x, expected)


def the_codec_takes_gpu_tensors(rank: int, size: int) -> None:
    """`agoq_comm.encode` and the rest give the CPU's bytes, on any stream."""
    for dtype in DTYPES:
        x = data(rank, COUNTS[1], dtype)
        expected = agoq_comm.encode(x)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            encoded = agoq_comm.encode(x.cuda())
            decoded = agoq_comm.decode(encoded)
            total = agoq_comm.reduce_encode([encoded, x.cuda(), encoded])
        stream.synchronize()
        assert torch.equal(encoded.data.cpu(), expected.data)
        equal(decoded, agoq_comm.decode(expected))
        on_cpu = agoq_comm.reduce_encode([expected, x, expected])
        assert torch.equal(total.data.cpu(), on_cpu.data)


def activations_are_stored_on_the_gpu(rank: int, size: int) -> None:
    """Formats give the CPU's bytes; hooks hold what they count, and gradients are near."""
    for element in activation.formats.BITS:
        for dtype in DTYPES:
            x = data(rank, COUNTS[1], dtype)
            packed = activation.quantize(x.cuda(), element)
            expected = activation.quantize(x, element)
            assert torch.equal(packed.data.cpu(), expected.data), (element, dtype)
            equal(activation.dequantize(packed), activation.dequantize(expected))
    layers = [torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)]
    model = torch.nn.Sequential(torch.nn.LayerNorm(256), *layers).cuda()
    x = data(rank, 2048 * 256).view(2048, 256).cuda().requires_grad_()
    exact = torch.autograd.grad(model(x).square().mean(), x)[0]
    with activation.compress(model, activation.Policy.agoq("int8")) as context:
        loss = model(x).square().mean()
    counters = context.accounting
    assert 0 < counters.stored_bytes < 0.6 * counters.original_bytes
    (gradient,) = torch.autograd.grad(loss, x)
    assert counters.stored_bytes == 0
    assert (gradient - exact).norm() < 0.02 * exact.norm()


def sequence_parallelism_as_on_the_cpu(rank: int, size: int) -> None:
    """Every function, and the norm between two blocks, give the bits that they give on the CPU."""
    for dtype in DTYPES:
        for width in sequence_cases.WIDTHS:
            for policy in (sp.QuantizationPolicy(), sp.EXACT):
                for results in (sequence_cases.of_functions, sequence_cases.of_norms):
                    on_cpu, on_gpu = (
                        results(
                            sequence_cases.Case(
                                rank, size, device, None, policy, dtype, width, SEQUENCE
                            )
                        )
                        for device in ("cpu", "cuda")
                    )
                    for actual, expected in zip(on_gpu, on_cpu, strict=True):
                        assert actual.is_cuda
                        equal(actual, expected)


def a_graph_of_rows_reads_its_inputs_anew(rank: int, size: int) -> None:
    """As above, of the sum that is normed and encoded, and of the gather of its bytes."""
    width = sequence_cases.WIDTHS[1]

    def inputs(device: str, seed: int) -> list[torch.Tensor]:
        shapes = ((SEQUENCE * size, width), (SEQUENCE, width), (width,))
        return [
            data(rank, shape.numel(), seed=seed).view(shape).to(device)
            for shape in map(torch.Size, shapes)
        ]

    def run(x: list[torch.Tensor]) -> list[torch.Tensor]:
        sums, normed = sp.reduce_scatter_norm(*x)
        return [sums, *normed, sp.gather_normed(normed)]

    on_gpu = inputs("cuda", 0)
    run(on_gpu)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run(on_gpu)
    for seed in (1, 2, 3):
        fresh = inputs("cpu", seed)
        for x, other in zip(on_gpu, fresh, strict=True):
            x.copy_(other)
        graph.replay()
        for actual, expected in zip(results, run(fresh), strict=True):
            equal(actual, expected)


def products_run_beside_collectives(rank: int, size: int) -> None:
    """In the profiler's times: a kernel of a group while a product runs on another stream."""
    activity = torch.profiler.ProfilerActivity.CUDA
    if activity not in torch.profiler.supported_activities():
        print("    torch's profiler has no CUDA activities here, so it was not tried")
        return
    rows, width = 2048, 4096
    layer = sp.ColumnParallelLinear(torch.nn.Linear(width, width * size, bias=False)).cuda()
    x = data(rank, rows * width).view(rows, width).cuda().requires_grad_()
    y = layer(x)
    gradient = torch.ones_like(y)
    y.backward(gradient, retain_graph=True)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[activity]) as profile:
        y.backward(gradient)
        torch.cuda.synchronize()
    kernels = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    if not kernels:
        print("    torch's profiler saw nothing of the GPU, so nothing was compared")
        return
    ours = [e for e in kernels if "agoq::" in e.name]
    streams = {e.device_resource_id for e in ours}
    others = [e for e in kernels if e.device_resource_id not in streams and "nccl" not in e.name]
    # Nothing else on the caller's stream takes as long.
    products = sorted(others, key=lambda e: e.time_range.elapsed_us())[-2:]
    assert ours and len(products) == 2, [e.name for e in kernels]
    assert any(
        one.time_range.start < other.time_range.end and other.time_range.start < one.time_range.end
        for one in ours
        for other in products
    ), [(e.name, e.device_resource_id, e.time_range.start, e.time_range.end) for e in kernels]


def cupy_arrays_stay_cupy_arrays(rank: int, size: int) -> None:
    """Where CuPy is installed."""
    try:
        import cupy
    except ImportError:
        print("    CuPy is not installed, so it was not tried")
        return
    x = data(rank, COUNTS[1])
    with cupy.cuda.Stream(non_blocking=True) as stream:
        array = cupy.asarray(x.numpy())
        decoded = agoq_comm.decode(agoq_comm.encode(array))
        stream.synchronize()
    assert isinstance(decoded, cupy.ndarray)
    equal(torch.from_numpy(cupy.asnumpy(decoded)), agoq_comm.decode(agoq_comm.encode(x)))


Check = Callable[[int, int], None]
ONE_RANK: tuple[Check, ...] = (
    same_as_on_the_cpu,
    the_host_does_not_wait,
    a_graph_reads_its_inputs_anew,
    the_codec_takes_gpu_tensors,
    activations_are_stored_on_the_gpu,
    sequence_parallelism_as_on_the_cpu,
    a_graph_of_rows_reads_its_inputs_anew,
    cupy_arrays_stay_cupy_arrays,
)
HOST: tuple[Check, ...] = (
    same_as_on_the_cpu,
    the_host_does_not_wait,
    many_calls_in_flight,
    sequence_parallelism_as_on_the_cpu,
    products_run_beside_collectives,
)
NCCL: tuple[Check, ...] = (
    *HOST,
    a_graph_reads_its_inputs_anew,
    a_graph_of_rows_reads_its_inputs_anew,
)
# Name: transport of CUDA tensors, that of CPU tensors, ranks, checks.
LAUNCHES = {
    "one rank over NCCL": ("auto", "auto", 1, ONE_RANK),
    "two ranks over host memory": ("host", "auto", 2, HOST),
    "two ranks over Gloo": ("host", "gloo", 2, HOST),
    "two ranks over NCCL": ("auto", "auto", 2, NCCL),
}


def run_rank(name: str, rank: int, store: str) -> int:
    """Run the checks of a launch on one rank; the number that failed."""
    device_transport, transport, size, checks = LAUNCHES[name]
    torch.cuda.set_device(0)
    dist.init_process_group(
        "agoq",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
        pg_options=agoq_comm.Options(
            quantize=QUANTIZED, device_transport=device_transport, transport=transport
        ),
    )
    failed = 0
    for check in checks:
        begun = time.monotonic()
        try:
            check(rank, size)
            outcome = "passed"
        except Exception:
            traceback.print_exc(file=sys.stdout)
            failed += 1
            outcome = "FAILED"
        if rank == 0 or outcome == "FAILED":
            seconds = time.monotonic() - begun
            print(f"  {outcome}  {check.__name__}, rank {rank} ({seconds:.1f} s)", flush=True)
    if rank == 0:
        print(agoq_comm.describe())
    dist.destroy_process_group()
    return failed


def launch(name: str) -> tuple[int, int]:
    """Run a launch; how many of its checks passed and failed."""
    size, checks = LAUNCHES[name][2:]
    print(f"{name}:", flush=True)
    variables = {**os.environ, "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, name]
        ranks = [
            subprocess.Popen([*command, str(rank), f"{directory}/store"], env=variables)
            for rank in range(size)
        ]
        codes = []
        for process in ranks:
            try:
                codes.append(process.wait(timeout=90))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(len(checks))
    failed = max(min(abs(code), len(checks)) for code in codes)
    return len(checks) - failed, failed


def main() -> int:
    """Run all launches that this machine can; the exit status."""
    passed = failed = 0
    for name in LAUNCHES:
        if name == "two ranks over NCCL" and torch.cuda.nccl.version() < MULTI_RANK_NCCL:
            have = ".".join(map(str, torch.cuda.nccl.version()))
            print(f"{name}: not run, since NCCL {have} takes one rank a GPU")
            continue
        some_passed, some_failed = launch(name)
        passed, failed = passed + some_passed, failed + some_failed
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(run_rank(sys.argv[1], int(sys.argv[2]), sys.argv[3]) if sys.argv[1:] else main())
