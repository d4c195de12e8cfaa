"""wrap_: outputs to the bit, gradients, and what is held between the passes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from agoq_comm.activation import Policy, Rule, unwrap_, wrap_
from wrapped_models import (
    LENGTH,
    WIDTH,
    Functional,
    Gpt,
    Llama,
    demo,
    error,
    features,
    gradients,
    held,
    loss_of,
    sequential,
)

# The bounds on all gradients together, by the bits of the format.
BOUNDS = {"fp4/128": 0.2, "e2m3/128": 0.05, "int8/128": 0.02}


class ReGlu(nn.Module):
    """A gate that is closed or open."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.up(x).chunk(2, -1)
        return self.down(torch.relu(gate) * up)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "demo": demo,
    "odd sizes": lambda: demo(hidden=344),
    "sequential": lambda: Gpt(sequential()),
    "functional": lambda: Gpt(Functional()),
    "dropout": lambda: Gpt(Functional(dropout=0.2)),
    "dropout within": lambda: Gpt(sequential(0.2)),
    "relu": lambda: Gpt(Functional(F.relu)),
    "gated relu": lambda: Gpt(ReGlu()),
    "rms": lambda: nn.Sequential(nn.RMSNorm(WIDTH, eps=1e-5), nn.Linear(WIDTH, WIDTH)),
    "no weights": lambda: nn.Sequential(
        nn.LayerNorm(WIDTH, elementwise_affine=False), nn.Linear(WIDTH, WIDTH), nn.SiLU()
    ),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[request.param]()


def both(model: nn.Module, policy: Policy) -> tuple[dict, dict]:
    """Return gradients without and with `wrap_`, of losses that are the same to the bit."""
    torch.manual_seed(3)
    loss, exact = gradients(model)
    wrap_(model, policy)
    torch.manual_seed(3)
    again, found = gradients(model)
    assert torch.equal(loss, again)
    return exact, found


@pytest.mark.parametrize("fmt", BOUNDS)
def test_losses_are_the_same_and_gradients_near(model: nn.Module, fmt: str) -> None:
    exact, found = both(model, Policy.agoq(fmt))
    assert 0 < error(found, exact) <= BOUNDS[fmt]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_lower_precision(model: nn.Module, dtype: torch.dtype) -> None:
    model.to(dtype)

    def run() -> torch.Tensor:
        torch.manual_seed(3)
        return loss_of(model) if isinstance(model, Llama) else model(features(dtype=dtype))

    before = run()
    wrap_(model, Policy.agoq("int8"))
    after = run()
    assert torch.equal(before, after)
    after.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == dtype for p in model.parameters())


# --- autograd ------------------------------------------------------------------------------------


def projection() -> tuple[nn.Module, nn.Module]:
    norm, linear = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
    wrap_(nn.ModuleList([norm, linear]), Policy.agoq("int8"))
    return norm, linear


def test_a_change_in_place_is_an_error() -> None:
    norm, linear = projection()
    x = features().requires_grad_() * 1.0
    y = norm(x)
    x.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = norm(features().requires_grad_())
    z = linear(y)
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    z = linear(norm(features().requires_grad_()))
    with torch.no_grad():
        linear.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_a_change_in_place_that_autograd_allows_is_none() -> None:
    norm, _ = projection()
    x = features(dtype=torch.bfloat16).requires_grad_() * 1.0
    norm.to(torch.bfloat16)
    y = norm(x)
    x.add_(y)
    x.sum().backward()
    assert norm.weight.grad is not None


def test_a_change_before_it_is_read_counts() -> None:
    norm, linear = projection()
    y = norm(features())
    y.mul_(2.0)
    linear(y).sum().backward()
    expected = 2.0 * F.rms_norm(features(), [WIDTH]).sum((0, 1))
    torch.testing.assert_close(linear.weight.grad[0], expected, rtol=0.05, atol=0.5)


def test_views_of_an_output_are_recognised() -> None:
    norm, linear = projection()
    x = features().requires_grad_()
    assert held(nn.ModuleList([norm, linear]), lambda: linear(norm(x).flatten(0, 1))) == (
        x.numel() * (1 + 2 / 128)
    )
    part = norm(x).chunk(2, 1)[0]
    linear(part).sum().backward()
    expected = F.rms_norm(x, [WIDTH])[:, : LENGTH // 2].sum((0, 1))
    torch.testing.assert_close(linear.weight.grad[0], expected, rtol=0.05, atol=0.5)


def test_a_transposed_view_is_in_another_order() -> None:
    act, linear = nn.SiLU(), nn.Linear(WIDTH, WIDTH)  # The function keeps its input's order.
    wrap_(nn.ModuleList([act, linear]), Policy.agoq("int8"))
    x = features().requires_grad_()
    linear(act(x.transpose(0, 1)).transpose(0, 1)).square().sum().backward()
    found = linear.weight.grad
    y = F.linear(F.silu(x), linear.weight, linear.bias)
    (exact,) = torch.autograd.grad(y.square().sum(), linear.weight)
    assert 0 < (found - exact).norm() <= BOUNDS["int8/128"] * exact.norm()


def test_each_reader_stores_as_its_rule_says() -> None:
    def errors(*rules: Rule) -> list[float]:
        torch.manual_seed(0)
        layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        wrap_(layers, Policy(rules, default="int8"))
        x = features().requires_grad_() * 1.0
        (layers[0](x) + layers[1](x)).sum().backward()
        exact = x.detach().sum((0, 1))
        return [((layer.weight.grad[0] - exact).norm() / exact.norm()).item() for layer in layers]

    alone = errors()
    assert alone[0] == alone[1]
    for number in range(2):
        found = errors(Rule("fp4", module=str(number)))
        assert found[1 - number] == alone[0] < 0.2 * found[number]


def test_the_backward_pass_may_run_again() -> None:
    model = demo()
    wrap_(model, Policy.agoq("int8"))
    loss = loss_of(model)
    parameters = list(model.parameters())
    # A part of the graph only: what the others would have shared is made anew afterwards.
    (part,) = torch.autograd.grad(loss, [model.blocks[0].attention.qkv.weight], retain_graph=True)
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    second = torch.autograd.grad(loss, parameters)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert any(torch.equal(part, gradient) for gradient in first)


def test_a_second_derivative_is_refused() -> None:
    model = demo(1)
    wrap_(model, Policy.agoq("int8"))
    weight = model.blocks[0].mlp.down.weight
    (gradient,) = torch.autograd.grad(loss_of(model), [weight], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_gives_the_same_gradients(reentrant: bool) -> None:
    model = Gpt(Functional(dropout=0.2))
    wrap_(model, Policy.agoq("int8"))

    def run(checkpointed: bool) -> tuple[torch.Tensor, ...]:
        x = features().requires_grad_()
        torch.manual_seed(3)
        y = checkpoint(model, x, use_reentrant=reentrant) if checkpointed else model(x)
        model.zero_grad()
        y.square().sum().backward()
        return (y, x.grad, *(p.grad for p in model.parameters()))

    for plain, again in zip(run(False), run(True), strict=True):
        assert torch.equal(plain, again)


def test_autocast() -> None:
    model = demo()

    def run() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model)
        model.zero_grad()
        loss.backward()
        return loss, {n: p.grad.clone() for n, p in model.named_parameters()}

    loss, exact = run()
    wrap_(model, Policy.agoq("int8"))
    again, found = run()
    assert torch.equal(loss, again)
    assert all(g.dtype == torch.float32 for g in found.values())
    assert error(found, exact) < 0.02


# --- the model stays what it is ------------------------------------------------------------------


def test_parameters_stay_the_same_objects() -> None:
    model = demo()
    model.head.weight = model.embedding.weight
    names, parameters = list(model.state_dict()), list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    modules = list(model.modules())
    replaced = wrap_(model)
    assert replaced["blocks.0.mlp"] == "gated silu MLP"
    assert replaced["blocks.1.attention_norm"] == "rms_norm" and replaced["head"] == "linear"
    assert list(model.state_dict()) == names
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert all(a is b for a, b in zip(model.modules(), modules, strict=True))
    assert isinstance(model.blocks[0].mlp_norm, nn.RMSNorm) and isinstance(model.head, nn.Linear)
    before = gradients(model)[0]
    optimizer.step()
    assert gradients(model)[0] < before
    assert model.head.weight is model.embedding.weight


def test_unwrap_restores_the_model() -> None:
    model = demo()
    classes = [type(module) for module in model.modules()]
    attributes = [set(vars(module)) for module in model.modules()]
    loss, exact = gradients(model)
    wrap_(model)
    waiting = loss_of(model)
    with pytest.raises(ValueError, match="unwrap_"):
        wrap_(model)
    unwrap_(model)
    waiting.backward()
    assert [type(module) for module in model.modules()] == classes
    assert [set(vars(module)) for module in model.modules()] == attributes
    again, found = gradients(model)
    assert torch.equal(loss, again) and all(torch.equal(found[n], exact[n]) for n in exact)


def test_unwrap_refuses_what_was_changed_since() -> None:
    model = demo(1)
    wrap_(model)
    classes = [type(module) for module in model.modules()]
    head = type(model.head)
    model.head.__class__ = type("Sharded", (head,), {})
    with pytest.raises(ValueError, match="'head' was changed to Sharded"):
        unwrap_(model)
    model.head.__class__ = head
    assert [type(module) for module in model.modules()] == classes
    unwrap_(model)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_wrapped(way: Callable[[nn.Module], nn.Module]) -> None:
    model = demo(1)
    wrap_(model, Policy.agoq("int8"))
    other = way(model)
    assert type(other.blocks[0].mlp) is type(model.blocks[0].mlp)
    loss, expected = gradients(model)
    again, found = gradients(other)
    assert torch.equal(loss, again) and all(torch.equal(found[n], expected[n]) for n in expected)
    unwrap_(other)
    assert type(other.blocks[0].mlp) is not type(model.blocks[0].mlp)


def test_hooks_run_where_they_ran() -> None:
    model = nn.Sequential(Gpt(sequential()), demo(1).blocks[0].mlp)
    calls: list[tuple[str, torch.Tensor]] = []
    for name, module in model.named_modules():
        module.register_forward_hook(
            lambda _m, _x, y, name=name: calls.append((name, y.detach().clone()))
        )
        module.register_full_backward_hook(
            lambda _m, _gx, g, name=name: calls.append((f"{name} backward", g[0].clone()))
        )

    def run() -> list[tuple[str, torch.Tensor]]:
        calls.clear()
        model(features().requires_grad_()).square().mean().backward()
        return list(calls)

    before = run()
    wrap_(model, Policy.agoq("int8"))
    after = run()
    assert [name for name, _ in after] == [name for name, _ in before] and len(before) > 20
    for (name, a), (_, b) in zip(before, after, strict=True):
        if not name.endswith("backward"):
            assert torch.equal(a, b)


def test_a_hook_that_replaces_an_output_is_followed() -> None:
    norm, linear = projection()
    norm.register_forward_hook(lambda _m, _x, y: 3.0 * y)
    linear(norm(features())).sum().backward()
    expected = 3.0 * F.rms_norm(features(), [WIDTH]).sum((0, 1))
    torch.testing.assert_close(linear.weight.grad[0], expected, rtol=0.05, atol=1.0)


def test_without_gradients_the_own_forward_runs() -> None:
    model = demo(1)
    with torch.no_grad():
        before = loss_of(model)
    wrap_(model)
    with torch.no_grad():
        after = loss_of(model)
        y = model.blocks[0].mlp_norm(features())
    assert torch.equal(before, after) and not vars(y)
    with torch.inference_mode():
        assert torch.equal(loss_of(model), before)
