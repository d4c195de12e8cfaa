"""compress on what autograd saves: parameters, shared contents, changes in place, all kinds."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agoq_comm.activation import Policy, Rule, compress
from agoq_comm.activation.layout import Layout
from saved_tensors import ALL_INT8, BIG, Call, Look, distance, gradients, saved_by


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


# --- parameters ------------------------------------------------------------------------------


def test_parameters_their_transposes_and_slices_are_never_copied():
    """Pytorch #64729: F.linear saves weight.t(), which is no nn.Parameter."""
    weight, bias = torch.randn(256, 256), torch.randn(256)

    def run(self, x):
        y = F.linear(x, self.weight, self.bias) + F.linear(x, self.weight[:64])[:, :1]
        return y * self.weight[3] * self.weight.view(4, -1)[0, :256]

    model = Call(run, weight=weight, bias=bias)
    model.register_buffer("table", torch.randn(256))
    x = torch.randn(BIG, requires_grad=True)
    y, context = saved_by(model, x)
    z, other = saved_by(Call(lambda self, x: x * model.table[:]), x)
    of_weights = [r for r in context.accounting.records if r.tensor_class == "parameter"]
    assert {(256, 256), (256, 64), (256,)} <= {r.shape for r in of_weights}
    assert all(r.stored_bytes == 0 and r.format is None for r in of_weights)
    # Of another model, whose storages this context does not know, the buffer is not a parameter.
    assert all(r.tensor_class != "parameter" for r in other.accounting.records)
    got = []
    with compress(model, ALL_INT8):
        result = Look.apply(got, x, model.weight.t(), model.weight[3:5, ::2], model.table[7:])
    (result + y.sum() + z.sum()).backward()
    views = [model.weight.t(), model.weight[3:5, ::2], model.table[7:]]
    for ours, exact in zip(got[1:], views, strict=True):
        assert ours.data_ptr() == exact.data_ptr()
        assert ours.stride() == exact.stride()


def test_parameters_replaced_within_the_context_are_known_by_their_module():
    model = nn.Linear(256, 256, bias=False)
    with compress(model, ALL_INT8) as context:
        model.weight = nn.Parameter(torch.randn(256, 256), requires_grad=False)
        x = torch.randn(BIG, requires_grad=True)
        y = model(x)
    assert [r.tensor_class for r in context.accounting.records] == ["parameter"]
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.ones(BIG) @ model.weight)


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_that_autocast_casts_are_kept(frozen):
    model = nn.Linear(256, 64)
    model.requires_grad_(not frozen)
    x = torch.randn(BIG, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y, context = saved_by(model, x)
    cast = next(r for r in context.accounting.records if r.shape in ((256, 64), (64, 256)))
    assert cast.kept_reason == "a cast or a copy of a parameter"
    assert cast.stored_bytes == cast.original_bytes == 256 * 64 * 2
    exact = torch.autograd.grad(y.float().sum(), x)[0]
    assert torch.equal(exact, (torch.ones(16, 64).bfloat16() @ model.weight.bfloat16()).float())


# --- one content, many saves -----------------------------------------------------------------


def test_what_is_saved_twice_is_stored_once():
    x = torch.randn(BIG, requires_grad=True)
    model = Call(lambda self, x: x.exp().sin() * x.view(64, 64).cos().view(BIG))
    y, context = saved_by(model, x)
    first, *_ = [r for r in context.accounting.records if r.shape == BIG]
    again = [r for r in context.accounting.records if r.deduplicated]
    # exp saves its result, which sin saves too; cos saves a view of x.
    assert not first.deduplicated
    assert len(again) == 1
    distinct = {r.original_bytes for r in context.accounting.records}
    assert distinct == {x.nbytes}
    stored = sum(r.stored_bytes for r in context.accounting.records)
    assert context.accounting.stored_bytes == stored
    assert context.accounting.original_bytes == 4 * x.nbytes
    y.sum().backward()
    assert context.accounting.stored_bytes == 0


def test_views_of_the_same_elements_are_one_content_with_the_strides_that_were_saved():
    x = torch.randn(8, 4, 128, requires_grad=True)
    forms = [x, x.transpose(0, 2), x.flatten(), x.permute(1, 2, 0), x.view(32, 128)]
    seen = []

    def run(self):
        return sum(form.exp().sum() + form.square().sum() for form in forms)

    with compress(Call(run), ALL_INT8) as context:
        result = Call(run)()
        node_inputs = [r for r in context.accounting.records if not r.deduplicated]
    squares = [r for r in context.accounting.records if r.original_bytes == x.nbytes]
    assert len(squares) == 2 * len(forms)
    # One for x in all its forms, and one for the result of each exp.
    assert len(node_inputs) == 1 + len(forms)
    for form in forms:
        layout = Layout.of(form)
        back = layout.put(layout.take(form).clone())
        assert back.stride() == form.stride()
        assert torch.equal(back, form)
        seen.append(layout.key(form))
    assert len(set(seen)) == 1
    result.backward()
    assert distance(x.grad, len(forms) * (x.exp() + 2 * x).detach()) < 0.02


def test_a_new_tensor_at_an_old_address_is_not_taken_for_the_old_one():
    model = Call(lambda self, x, y: (x * y).sum())
    for value in range(1, 40):
        x = torch.full(BIG, float(value))
        y = torch.ones(BIG, requires_grad=True)
        result, _ = saved_by(model, x, y)
        del x
        assert distance(torch.autograd.grad(result, y)[0], torch.full(BIG, value * 1.0)) < 0.01


def test_the_same_memory_after_a_change_in_place_is_another_content():
    x, w = torch.ones(BIG), torch.ones(BIG, requires_grad=True)

    def run(self):
        y = x.clone()
        stale = (w * y).sum()
        return stale, (w * y.mul_(5)).sum()

    (stale, result), _ = saved_by(Call(run))
    assert distance(torch.autograd.grad(result, w)[0], torch.full(BIG, 5.0)) < 0.01
    with pytest.raises(RuntimeError, match="is at version 1; expected version 0"):
        stale.backward()


# --- changes in place ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [ALL_INT8, Policy.exact()], ids=["int8", "exact"])
@pytest.mark.parametrize(
    "change",
    [
        lambda y: y.add_(1),
        lambda y: y[0].zero_(),
        lambda y: y.view(-1)[3:5].mul_(2),
        lambda y: y.detach().add_(1),
    ],
    ids=["itself", "a row", "a view of a view", "what is detached"],
)
def test_a_change_in_place_raises_as_in_autograd(policy, change):
    """A quantized copy would hide it."""
    x = torch.randn(BIG, requires_grad=True)

    def expect(y, message):
        with torch.no_grad():
            change(y)
        with pytest.raises(RuntimeError, match=message) as error:
            y.sum().backward()
        return str(error.value)

    stock = expect(x.exp(), "modified by an inplace operation")
    y, _ = saved_by(Call(lambda self, x: x.exp()), x, policy=policy)
    ours = expect(y, r"modified by an inplace operation: \[torch.FloatTensor \[16, 256\]\]")
    assert "is at version 1; expected version 0" in ours
    assert "is at version 1; expected version 0" in stock


def test_a_change_is_seen_through_a_view_when_the_saved_tensor_itself_is_gone():
    x = torch.randn(BIG, requires_grad=True)

    def run(self, x):
        y = x * 1
        z = y.square()
        row = y[0]
        del y
        return z, row

    (z, row), _ = saved_by(Call(run), x)
    with torch.no_grad():
        row.zero_()
    with pytest.raises(RuntimeError, match="expected version 0"):
        z.sum().backward()


def test_in_place_operations_that_are_right_stay_so():
    x = torch.randn(BIG, requires_grad=True)

    def run(self, x):
        return torch.sigmoid_((x * 1).mul_(0.5)).add(x).sin_()

    def loss():
        return Call(run)(x).square().sum()

    (exact,) = gradients(loss, [x])
    (ours,) = gradients(loss, [x], ALL_INT8)
    assert distance(ours, exact) < 0.02
    (kept,) = gradients(loss, [x], Policy.exact())
    assert torch.equal(kept, exact)


def test_an_optimizer_s_step_before_the_backward_pass_raises():
    model = nn.Linear(64, 64)
    y, _ = saved_by(model, torch.randn(32, 64, requires_grad=True))
    with torch.no_grad():
        model.weight.add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        y.sum().backward()


# --- kinds of tensors ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_shape_and_strides_come_back(dtype):
    """Autograd does not notice another dtype."""
    got = []
    base = torch.randn(24, 40, 2, dtype=dtype)
    tensors = [
        torch.randn(24, 40, dtype=dtype, requires_grad=True),
        base[:, ::2, 0],
        base.permute(2, 0, 1),
        base[:, :1, :].expand(24, 30, 2),
        base[3, 4, 1],
        base[:0],
        base.flatten().as_strided((20, 20), (3, 1)),
    ]
    with compress(nn.Module(), ALL_INT8):
        result = Look.apply(got, *tensors)
    result.backward()
    assert len(got) == len(tensors)
    for ours, exact in zip(got, tensors, strict=True):
        assert ours.dtype == exact.dtype
        assert ours.shape == exact.shape
        assert ours.numel() == 0 or (ours - exact).abs().max() < 0.05
    assert got[2].stride() == tensors[2].stride()
    assert got[3].stride()[1] == 0
    assert got[3].untyped_storage().nbytes() == 24 * 2 * dtype.itemsize
    assert torch.equal(got[6], tensors[6])  # It overlaps itself, and is kept.


def test_integers_bools_and_complex_are_kept_exactly():
    index = torch.randint(0, 16, BIG)
    mask = torch.rand(BIG) > 0.5
    wave = torch.randn(BIG, dtype=torch.complex64)
    x = torch.randn(BIG, requires_grad=True)

    def run(self, x):
        y = torch.where(mask, x, 0.0).gather(0, index)
        return (y * wave).abs().square().sum() + (x.double() ** 2).sum()

    (exact,) = gradients(lambda: Call(run)(x), [x])
    y, context = saved_by(Call(run), x, policy=Policy(default="int8"))
    for record in context.accounting.records:
        if not record.dtype.is_floating_point or record.dtype == torch.float64:
            assert record.format is None
            assert "is not quantized" in record.kept_reason
    (ours,) = torch.autograd.grad(y, x)
    assert distance(ours, exact) < 0.03


def test_a_part_of_a_larger_memory_is_copied_so_that_the_rest_is_freed():
    """V of a fused QKV projection would hold Q and K too."""
    x = torch.randn(BIG, requires_grad=True)
    keep = Policy([Rule("keep")])

    def run(self, x):
        v = (torch.cat([x, x, x, x], 1) * 1).chunk(4, 1)[2]
        return v.exp().sum() + v.square().sum()

    y, context = saved_by(Call(run), x, policy=keep)
    assert context.accounting.stored_bytes == 2 * x.nbytes  # v, once, and its exponential
    (grad,) = torch.autograd.grad(y, x)
    assert torch.equal(grad, x.exp() + 2 * x)


def test_a_view_of_what_is_held_exactly_is_free():
    x = torch.randn(BIG, requires_grad=True)
    policy = Policy([Rule("keep", module="a")], "int8")
    model = nn.ModuleDict(
        {"a": Call(lambda self, y: y.square()), "b": Call(lambda self, y: y.t().sin())}
    )
    with compress(model, policy) as context:
        y = x * 1
        result = model["a"](y).sum() + model["b"](y).sum()
    of_b = [r for r in context.accounting.records if r.module == "b"]
    assert [(r.stored_bytes, r.deduplicated) for r in of_b] == [(0, True)]
    assert of_b[0].kept_reason == "a view of what is held exactly"
    (grad,) = torch.autograd.grad(result, x)
    assert torch.equal(grad, 2 * x + x.cos())


def test_fake_tensors_pass_through():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.randn(BIG)).requires_grad_()
        y, context = saved_by(Call(lambda self, x: x.exp()), x)
        (grad,) = torch.autograd.grad(y.sum(), x)
    assert grad.shape == BIG
    assert context.accounting.records == []


def test_sparse_and_subclasses_pass_through():
    x = torch.randn(BIG, requires_grad=True)
    sparse = torch.eye(16).to_sparse()
    y, _ = saved_by(Call(lambda self, x: torch.sparse.mm(sparse, x)), x)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.ones(BIG))


def test_nothing_is_saved_without_gradients():
    x = torch.randn(BIG, requires_grad=True)
    with torch.no_grad():
        _, context = saved_by(Call(lambda self, x: x.exp()), x)
    assert context.accounting.records == []
