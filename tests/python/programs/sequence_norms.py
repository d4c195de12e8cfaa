"""RMSNorm fused with the collectives around it: values, gradients, bytes, layers."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import agoq_comm
from agoq_comm import sequence_parallel as sp
from agoq_comm.sequence_parallel.row_blocks import RowBlocks
from checks import Checks
from programs import row_oracle
from programs.common import data, equal, refused
from ranks import Rank

checks = Checks()
# Whole blocks, a short tail.
WIDTHS = (256, 200)
EPSILON = 1e-5
FORWARD_ONLY = sp.QuantizationPolicy(forward=True, backward=False)
BACKWARD_ONLY = sp.QuantizationPolicy(forward=False, backward=True)


def _rows(width: int) -> int:
    """Enough for a rank's part to be quantized, and a number that nothing divides."""
    return 16384 // width + 3


@functools.cache
def _all_quantized() -> dist.ProcessGroup:
    everything = ("all_reduce", "reduce_scatter", "all_gather")
    return dist.new_group(pg_options=agoq_comm.Options(quantize=everything))


class _Case:
    """Every rank's term of a sum, its residual, and what comes back to it."""

    def __init__(self, me: Rank, width: int, dtype: torch.dtype = torch.float32) -> None:
        self.rows, self.rank = _rows(width), me.rank
        ranks = range(me.size)
        self.terms = [data(r, self.rows * me.size, width, dtype=dtype) for r in ranks]
        self.residuals = [data(r, self.rows, width, dtype=dtype, seed=1) for r in ranks]
        self.weight = 1 + data(9, width, seed=2) / 4
        self.grads = [data(r, self.rows, width, dtype=dtype, seed=3) for r in ranks]
        self.sums_grads = [data(r, self.rows, width, dtype=dtype, seed=4) for r in ranks]

    def run(self, policy: sp.QuantizationPolicy, group: dist.ProcessGroup | None = None):
        """(sums, normed), and gradients of term, residual and weight."""
        inputs = [self.terms[self.rank], self.residuals[self.rank], self.weight]
        inputs = [x.clone().requires_grad_() for x in inputs]
        sums, normed = sp.reduce_scatter_norm(*inputs, EPSILON, group, policy=policy)
        torch.autograd.backward(
            [sums, normed.values], [self.sums_grads[self.rank], self.grads[self.rank]]
        )
        return sums.detach(), normed, [x.grad for x in inputs]

    def exact(self):
        """The same in fp64 for all ranks' rows at once: gradients of terms are those of sums."""
        total = sum(term.double() for term in self.terms)
        x = (total + torch.cat(self.residuals).double()).requires_grad_()
        weight = self.weight.double().requires_grad_()
        normed = F.rms_norm(x, weight.shape, weight, EPSILON)
        torch.autograd.backward(
            [x, normed], [torch.cat(self.sums_grads).double(), torch.cat(self.grads).double()]
        )
        return x.detach(), normed.detach(), x.grad


def _steps(x: torch.Tensor) -> torch.Tensor:
    """Half a step of each element's block of a row, scales rounded up to bf16."""
    blocks = F.pad(x.double(), (0, -x.shape[-1] % 128)).unflatten(-1, (-1, 128))
    half = blocks.abs().amax(-1, keepdim=True) / 127 * (1 + 2**-7) * 0.5001
    return half.expand(blocks.shape).flatten(-2)[..., : x.shape[-1]]


@checks
def fused_is_what_it_consists_of(me: Rank) -> None:
    """To the bit for sums and encoding; the norm but for the order in which squares are added."""
    for group in (None, _all_quantized()):
        for width in WIDTHS:
            for policy in (sp.QuantizationPolicy(), sp.EXACT):
                case = _Case(me, width)
                sums, normed, _ = case.run(policy, group)
                part = sp.reduce_scatter_to_sequence_parallel_region(
                    case.terms[me.rank], group, policy=policy
                )
                equal(sums, part + case.residuals[me.rank])
                right = F.rms_norm(sums, [width], case.weight, EPSILON)
                torch.testing.assert_close(normed.values.detach(), right, rtol=1e-6, atol=1e-6)
                if policy == sp.EXACT:
                    assert normed.encoded.numel() == 0
                else:
                    equal(normed.encoded, RowBlocks(width).encode(normed.values.detach()))


@checks
def a_norm_alone_gives_the_same_bits(me: Rank) -> None:
    for width in WIDTHS:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            case = _Case(me, width, dtype)
            sums, normed, _ = case.run(sp.QuantizationPolicy())
            again = sp.rms_norm(sums, case.weight, EPSILON)
            equal(again.values, normed.values.detach())
            equal(again.encoded, normed.encoded)


@checks
def the_sum_with_the_residual_is_rounded_once(me: Rank) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        case = _Case(me, 200, dtype)
        sums, _, _ = case.run(sp.QuantizationPolicy())
        in_fp32 = torch.zeros(case.rows, 200)
        for rank, term in enumerate(case.terms):
            piece = term.split(case.rows)[me.rank].float()
            in_fp32 += piece if rank == me.rank else row_oracle.roundtrip(piece)
        equal(sums, (in_fp32 + case.residuals[me.rank].float()).to(dtype))


@checks
def values_and_gradients_stay_within_the_propagated_bound(me: Rank) -> None:
    for width in WIDTHS:
        case = _Case(me, width)
        mine = slice(me.rank * case.rows, (me.rank + 1) * case.rows)
        exact_sums, _, exact_grad = case.exact()
        sums, _, _ = case.run(FORWARD_ONLY)
        others = [t for rank, t in enumerate(case.terms) if rank != me.rank]
        bound = sum(_steps(t[mine]) for t in others) + 1e-5
        assert bool(((sums.double() - exact_sums[mine]).abs() <= bound).all())
        assert float((sums.double() - exact_sums[mine]).abs().max()) > 1e-4
        # Gradients that travel quantized, of sums that did not.
        _, _, (grad_term, grad_residual, _) = case.run(BACKWARD_ONLY)
        torch.testing.assert_close(grad_residual.double(), exact_grad[mine], rtol=1e-4, atol=1e-5)
        bound = _steps(exact_grad) + 1e-4
        assert bool(((grad_term.double() - exact_grad).abs() <= bound).all())
        assert float((grad_term.double() - exact_grad).abs().max()) > 1e-4


@checks
def gradients_are_right_where_nothing_is_quantized(me: Rank) -> None:
    """Gradcheck in fp64, of the sum over ranks of what each gets."""
    torch.manual_seed(0)
    x = torch.randn(2 * me.size, 3, 5, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, dtype=torch.float64, requires_grad=True)

    def total(x, residual, weight):
        # Equal inputs and equal perturbations on all ranks: gradients sum over them.
        x, residual, weight = (
            sp.copy_to_tensor_model_parallel_region(t, policy=sp.EXACT)
            for t in (x, residual, weight)
        )
        sums, normed = sp.reduce_scatter_norm(x, residual, weight, EPSILON, policy=sp.EXACT)
        whole = sp.gather_normed(normed, policy=sp.EXACT)
        alone = sp.rms_norm(residual, weight, EPSILON, policy=sp.EXACT).values
        of_rank = sums.sin().sum() + alone.cos().sum()
        of_rank = of_rank + (whole * torch.linspace(1, 2, 5, dtype=x.dtype)).square().sum()
        return sp.reduce_from_tensor_model_parallel_region(of_rank.view(1, 1), policy=sp.EXACT)

    assert torch.autograd.gradcheck(total, (x, residual, weight))


@checks
def all_ranks_gather_the_same_bits_encoded_once(me: Rank) -> None:
    for width in WIDTHS:
        group = _all_quantized()
        case = _Case(me, width)
        _, normed, _ = case.run(sp.QuantizationPolicy(), group)
        agoq_comm.reset_stats(group)
        whole = sp.gather_normed(normed, group).detach()
        stats = agoq_comm.stats(group)["all_gather"]
        assert stats["quantized_calls"] == stats["calls"] == 1, stats
        assert stats["wire_bytes"] == (me.size - 1) * normed.encoded.numel()
        out = torch.empty(case.rows, width)
        RowBlocks(width).decode_into(out, normed.encoded)
        equal(whole.split(case.rows)[me.rank], out)
        everyone = [torch.empty_like(whole) for _ in range(me.size)]
        dist.all_gather(everyone, whole)
        for other in everyone:
            equal(other, whole)


@checks
def uneven_parts_and_more_dimensions(me: Rank) -> None:
    sizes = [_rows(200) + 5 * rank for rank in range(me.size)]
    terms = [data(rank, sum(sizes), 2, 200) for rank in range(me.size)]
    residual = data(me.rank, sizes[me.rank], 2, 200, seed=1).requires_grad_()
    weight = torch.ones(200)
    sums, normed = sp.reduce_scatter_norm(
        terms[me.rank], residual, weight, EPSILON, input_split_sizes=sizes
    )
    right = row_oracle.reduce_scattered(terms, sizes)[me.rank]
    equal(sums.detach(), right + residual.detach())
    assert normed.values.shape == residual.shape
    (sums.sum() + normed.values.sum()).backward()
    assert residual.grad.shape == residual.shape


@checks
def a_nan_stays_in_its_row(me: Rank) -> None:
    case = _Case(me, 200)
    case.residuals[me.rank][3, 7] = float("nan")
    sums, normed, _ = case.run(sp.QuantizationPolicy())
    assert int(sums.isnan().sum()) == 1
    assert bool(normed.values[3].isnan().all()) and int(normed.values.isnan().sum()) == 200
    whole = sp.gather_normed(normed)
    assert int(whole.isnan().sum()) == 200 * me.size


class _Block(nn.Module):
    """norm, up, down, residual, norm, up: every way in which rows come to a layer."""

    def __init__(
        self,
        me: Rank,
        width: int,
        group: dist.ProcessGroup | None,
        fused: bool,
        bias: bool = False,
    ) -> None:
        super().__init__()
        torch.manual_seed(3)
        ups = [nn.Linear(width, 32 * me.size) for _ in range(2)]
        self.up = sp.ColumnParallelLinear(ups[0], group)
        self.down = sp.RowParallelLinear(nn.Linear(32 * me.size, width, bias), group)
        self.head = sp.ColumnParallelLinear(ups[1], group)
        self.weight = nn.Parameter(1 + torch.randn(width) / 8)
        self.fused = fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = sp.rms_norm(x, self.weight, EPSILON, self.up.group)
        hidden = F.silu(self.up(normed if self.fused else normed.values))
        if self.fused:
            x, normed = self.down.into_norm(hidden, x, self.weight, EPSILON)
            return self.head(normed)
        x = x + self.down(hidden)
        return self.head(sp.rms_norm(x, self.weight, EPSILON, self.up.group).values)


def _gradients(net: nn.Module, x: torch.Tensor, grad: torch.Tensor):
    x = x.clone().requires_grad_()
    y = net(x)
    y.backward(grad)
    return [y.detach(), x.grad, *(parameter.grad for parameter in net.parameters())]


@checks
def layers_take_the_encoded_rows(me: Rank) -> None:
    """The same bits as with residual, norm and encoding apart."""
    for group in (None, _all_quantized()):
        for width in WIDTHS:
            rows = _rows(width)
            x = data(me.rank, rows, width)
            grad = data(me.rank, rows * me.size, 32, seed=1)
            fused = _gradients(_Block(me, width, group, True), x, grad)
            apart = _gradients(_Block(me, width, group, False), x, grad)
            for actual, right in zip(fused, apart, strict=True):
                equal(actual, right)


@checks
def a_bias_is_added_before_the_sum(me: Rank) -> None:
    x = data(me.rank, _rows(200), 200)
    grad = data(me.rank, _rows(200) * me.size, 32, seed=1)
    with sp.use_policy(sp.EXACT):
        fused = _gradients(_Block(me, 200, None, True, bias=True), x, grad)
        apart = _gradients(_Block(me, 200, None, False, bias=True), x, grad)
    for actual, right in zip(fused, apart, strict=True):
        torch.testing.assert_close(actual, right, rtol=1e-4, atol=1e-4)


@checks
def what_a_layer_keeps_is_what_the_norm_encoded(me: Rank) -> None:
    width = 200
    column = sp.ColumnParallelLinear(nn.Linear(width, 32 * me.size), _all_quantized())
    x = data(me.rank, _rows(width), width)
    normed = sp.rms_norm(x, torch.ones(width), EPSILON, _all_quantized())
    y = column(sp.Normed(normed.values.requires_grad_(), normed.encoded))
    kept = [t for t in y.grad_fn.saved_tensors if t.dtype == torch.uint8]
    assert [t.data_ptr() for t in kept] == [normed.encoded.data_ptr()]
    equal(y.detach(), column(normed.values.detach()).detach())


@checks
def an_exact_layer_sends_no_encoded_rows(me: Rank) -> None:
    x = data(me.rank, _rows(200), 200)
    normed = sp.rms_norm(x, torch.ones(200), EPSILON, _all_quantized())
    assert normed.encoded.numel() > 0
    layer = nn.Linear(200, 32 * me.size)
    column = sp.ColumnParallelLinear(layer, _all_quantized(), policy=sp.EXACT)
    y = column(sp.Normed(normed.values.requires_grad_(), normed.encoded))
    assert all(t.dtype == torch.float32 for t in y.grad_fn.saved_tensors)
    equal(y.detach(), column(normed.values.detach()).detach())


@checks
def a_fused_block_compiles_without_a_graph_break(me: Rank) -> None:
    width = 256
    x = data(me.rank, _rows(width), width)
    grad = data(me.rank, _rows(width) * me.size, 32, seed=1)
    net = _Block(me, width, None, True)
    expected = _gradients(net, x, grad)
    net.zero_grad()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    for actual, right in zip(_gradients(compiled, x, grad), expected, strict=True):
        torch.testing.assert_close(actual, right, rtol=1e-5, atol=1e-5)


@checks
def one_rank_adds_and_norms(me: Rank) -> None:
    alone = [dist.new_group([rank]) for rank in range(me.size)][me.rank]
    term, residual = data(me.rank, 70, 300).requires_grad_(), data(me.rank, 70, 300, seed=1)
    weight = torch.full((300,), 0.5)
    sums, normed = sp.reduce_scatter_norm(term, residual, weight, EPSILON, alone)
    equal(sums.detach(), term.detach() + residual)
    right = F.rms_norm(term.detach() + residual, [300], weight, EPSILON)
    torch.testing.assert_close(normed.values.detach(), right, rtol=1e-6, atol=1e-6)
    assert sp.gather_normed(normed, alone) is normed.values
    normed.values.sum().backward()
    assert term.grad.shape == term.shape


@checks
def mistakes_are_named(me: Rank) -> None:
    x, residual = data(0, 2 * me.size, 8), data(0, 2, 8)
    cases = (
        (lambda: sp.reduce_scatter_norm(x, residual, torch.ones(7)), "`weight` must be 8"),
        (lambda: sp.reduce_scatter_norm(x, residual[:1], torch.ones(8)), "residual is [1, 8], but"),
        (
            lambda: sp.RowParallelLinear(nn.Linear(me.size, 8), sequence_parallel=False).into_norm(
                x, residual, torch.ones(8)
            ),
            "into_norm is for layers with sequence_parallel=True",
        ),
    )
    for call, words in cases:
        with refused(words):
            call()
