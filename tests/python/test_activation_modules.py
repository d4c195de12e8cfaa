"""Which module compress takes a tensor for: nesting, exceptions, compiled modules, checkpoints."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from agoq_comm.activation import Policy, Rule, compress
from saved_tensors import ALL_INT8, BIG, Call, distance

WIDTH = BIG[1]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


class SelfAttention(nn.Module):
    """Named so, and saves two tensors of its own."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.out(x.sin().cos())


class Mlp(nn.Module):
    """Named so."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH, bias=False)
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(self.up(x))


class Block(nn.Module):
    """Both."""

    def __init__(self):
        super().__init__()
        self.attention = SelfAttention()
        self.mlp = Mlp()

    def forward(self, x):
        return self.mlp(self.attention(x)).exp()


def activations(context):
    """What was saved but for parameters."""
    return [r for r in context.accounting.records if r.tensor_class != "parameter"]


def sites(context):
    return [(r.module, r.tensor_class) for r in activations(context)]


def run(model, policy=ALL_INT8, x=None):
    x = torch.randn(BIG, requires_grad=True) if x is None else x
    with compress(model, policy) as context:
        y = model(x)
        y = y.square()
    return y, context, x


EXPECTED = [
    ("attention", "attention"),  # sin
    ("attention", "attention"),  # cos
    ("attention.out", "attention"),
    ("mlp.up", "linear"),
    ("mlp.act", "mlp"),
    ("", "other"),  # exp
    ("", "loss"),  # square, outside of the model
]


def test_each_tensor_has_its_innermost_module_and_the_stack_ends_empty():
    model = Block()
    y, context, _ = run(model, Policy.agoq("int8"))
    assert sites(context) == EXPECTED
    formats = [r.format for r in activations(context)]
    assert formats == [None, None, None, "int8/128", "int8/128", None, None]
    y.sum().backward()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_an_exception_in_a_forward_leaves_nothing_behind():
    model = Block()

    def fail(*_):
        raise KeyError("from within")

    with compress(model, ALL_INT8) as context:
        for place in (model.mlp.act, model.mlp, model.attention):
            handle = place.register_forward_pre_hook(fail)
            with pytest.raises(KeyError):
                model(torch.randn(BIG, requires_grad=True))
            handle.remove()
            assert context._running.innermost().module is None
        handle = model.mlp.up.register_forward_hook(fail)
        with pytest.raises(KeyError):
            model(torch.randn(BIG, requires_grad=True))
        handle.remove()
        assert context._running.innermost().module is None
    with pytest.raises(KeyError), compress(model, ALL_INT8):
        fail()
    assert sites(run(model)[1]) == EXPECTED


def test_a_context_that_cannot_be_entered_leaves_nothing_behind():
    model = Block()
    context = compress(model, ALL_INT8)
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"):
            context.__enter__()
        assert not model.mlp._forward_hooks
    with context:
        model(torch.randn(BIG, requires_grad=True))
    assert sites(context) == EXPECTED[:-1]


def test_a_module_that_calls_itself():
    def again(self, x, depth=2):
        y = x.sin()
        return self(y, depth - 1).cos() if depth else y

    model = nn.ModuleDict({"a": Call(again), "b": Call(lambda self, x: x.exp())})
    with compress(model, ALL_INT8) as context:
        model["b"](model["a"](torch.randn(BIG, requires_grad=True)))
    assert [r.module for r in context.accounting.records] == ["a"] * 5 + ["b"]


def test_a_module_that_is_shared_has_its_first_name():
    layer = Mlp()
    model = nn.Sequential(layer, layer)
    _, context, _ = run(model)
    assert {name for name, _ in sites(context)} == {"0.up", "0.act", ""}


def test_threads_have_stacks_of_their_own():
    """Hooks are for the thread that entered the context; modules may run in others meanwhile."""
    model, entered, leave = Block(), threading.Event(), threading.Event()
    inside = Call(lambda self, x: entered.set() or leave.wait(60) or x)
    both = nn.ModuleDict({"inside": inside, "block": model})
    with compress(both, ALL_INT8) as context:
        thread = threading.Thread(target=inside, args=(torch.ones(3),))
        thread.start()
        assert entered.wait(60)
        both["block"](torch.randn(BIG, requires_grad=True))
        leave.set()
        thread.join()
    assert [r.module for r in activations(context)] == [
        f"block.{name}".rstrip(".") for name, _ in EXPECTED[:-1]
    ]


def test_a_context_is_entered_once_at_a_time_and_again_later():
    model = Block()
    context = compress(model, ALL_INT8)
    for _ in range(3):
        with context:
            y = model(torch.randn(BIG, requires_grad=True))
            with pytest.raises(RuntimeError, match="active already"):
                context.__enter__()
        held = context.accounting.stored_bytes
        y.sum().backward()
        assert context.accounting.stored_bytes == 0
    assert len(activations(context)) == 6
    assert context.accounting.peak_stored_bytes == held
    context.accounting.reset_peaks()
    assert context.accounting.peak_stored_bytes == 0


def test_one_context_around_a_whole_loop():
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with compress(model, ALL_INT8) as context:
        for _ in range(3):
            model(torch.randn(BIG, requires_grad=True)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            assert context.accounting.stored_bytes == 0
    assert len(activations(context)) == 7


def test_autocast():
    model = Block()
    x = torch.randn(BIG, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        exact = torch.autograd.grad(model(x).square().mean(), [x, *model.parameters()])
        y, context, _ = run(model, ALL_INT8, x)
    ours = torch.autograd.grad(y.mean(), [x, *model.parameters()])
    for one, other in zip(ours, exact, strict=True):
        assert one.dtype == other.dtype
        assert distance(one, other) < 0.03
    assert torch.bfloat16 in {r.dtype for r in activations(context)}


# --- compiled modules ------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_part_runs_as_one_and_is_compiled_once(in_place):
    model, counter = Block(), CompileCounterWithBackend("aot_eager")
    reference = torch.randn(BIG, requires_grad=True)
    exact = torch.autograd.grad(model(reference).square().mean(), reference)[0]
    if in_place:
        model.mlp.compile(backend=counter)
    else:
        model.mlp = torch.compile(model.mlp, backend=counter)
    for _ in range(3):
        y, context, _ = run(model, Policy.agoq("int8"), reference)
        ours = torch.autograd.grad(y.mean(), reference)[0]
        assert distance(ours, exact) < 0.02
    of_mlp = [r for r in activations(context) if r.module == "mlp"]
    assert {(r.tensor_class, r.format) for r in of_mlp} == {("mlp", "int8/128")}
    assert not [r for r in activations(context) if r.module.startswith("mlp.")]
    assert counter.frame_count == 1


@pytest.mark.parametrize("in_place", [False, True])
def test_attention_that_is_compiled_with_other_layers_stays_exact(in_place):
    model = Block()
    if in_place:
        model.compile(backend="aot_eager")
        compiled = model
    else:
        compiled = torch.compile(model, backend="aot_eager")
    y, context, x = run(compiled, Policy.agoq("int8"))
    inside = [r for r in activations(context) if r.tensor_class != "loss"]
    assert {r.tensor_class for r in inside} == {"attention"}
    assert all(r.format is None for r in inside)
    ours = torch.autograd.grad(y.sum(), x)[0]
    assert torch.equal(ours, torch.autograd.grad(model(x).square().sum(), x)[0])


# --- checkpoints -----------------------------------------------------------------------------


def _checkpointed(model, use_reentrant):
    return Call(lambda self, x: checkpoint(model, x.sigmoid(), use_reentrant=use_reentrant))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_around_a_checkpoint_the_hooks_see_its_inputs_at_most(use_reentrant):
    block = Block()
    model = _checkpointed(block, use_reentrant)
    model.block = block
    x = torch.randn(BIG, requires_grad=True)
    exact = torch.autograd.grad(block(x.sigmoid()).sum(), x)[0] if not use_reentrant else None
    with compress(model, ALL_INT8) as context:
        y = model(x)
    assert {r.module for r in activations(context)} == {""}
    assert context.accounting.stored_bytes <= x.nbytes  # the sigmoid's result, which is the input
    y.sum().backward()
    assert context.accounting.stored_bytes == 0
    if exact is None:
        exact = torch.autograd.grad(block(x.sigmoid()).sum(), x)[0]
    assert distance(x.grad, exact) < 0.03


def test_inputs_of_a_checkpoint_that_are_nested_in_containers():
    """As in accelerate #4175: they are held all the same, and are freed."""
    block = Block()

    def mix(parts):
        return block(parts["pair"][0] + parts["pair"][1]) * parts["scale"]

    def run_nested(self, x):
        parts = {"pair": (x.sin(), x.cos()), "scale": 2.0}
        return checkpoint(mix, parts, use_reentrant=False)

    model = Call(run_nested)
    model.block = block
    x = torch.randn(BIG, requires_grad=True)
    exact = torch.autograd.grad(run_nested(model, x).sum(), x)[0]
    y, context, _ = run(model, ALL_INT8, x)
    # Each of sin and cos saves x; what the checkpoint holds in a container no hook sees.
    assert [r.deduplicated for r in activations(context) if r.module == ""][:2] == [False, True]
    del y
    with compress(model, ALL_INT8):
        y = model(x)
    y.sum().backward()
    assert context.accounting.stored_bytes == 0
    assert distance(x.grad, exact) < 0.03


def test_within_a_checkpoint_that_is_not_reentrant_it_is_refused():
    """The hooks would replace those of the checkpoint, and silently defeat it."""
    model = Block()

    def forward(x):
        with compress(model, ALL_INT8):
            return model(x)

    with pytest.raises(RuntimeError, match=r"use_reentrant=False.*Enter compress\(\) around"):
        checkpoint(forward, torch.randn(BIG, requires_grad=True), use_reentrant=False)


def test_within_a_reentrant_checkpoint_it_stores_while_that_runs_again():
    model = Block()
    contexts = []

    def forward(x):
        with compress(model, ALL_INT8) as context:
            contexts.append(context)
            return model(x)

    x = torch.randn(BIG, requires_grad=True)
    exact = torch.autograd.grad(model(x).sum(), x)[0]
    checkpoint(forward, x, use_reentrant=True).sum().backward()
    assert [len(activations(context)) for context in contexts] == [0, 6]
    assert all(context.accounting.stored_bytes == 0 for context in contexts)
    assert distance(x.grad, exact) < 0.02


def test_rules_see_names_and_classes_of_the_running_modules():
    policy = Policy(
        [Rule("int8/32", module="mlp.act"), Rule("int8/64", inside=SelfAttention)], "keep"
    )
    _, context, _ = run(Block(), policy)
    assert {r.module: r.format for r in activations(context)} == {
        "attention": "int8/64",
        "attention.out": "int8/64",
        "mlp.up": None,
        "mlp.act": "int8/32",
        "": None,
    }
