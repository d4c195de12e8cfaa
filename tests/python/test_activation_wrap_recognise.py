"""What `wrap_` recognises, what it refuses, and why it says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agoq_comm.activation import NotRecognised, Policy, Rule, wrap_
from agoq_comm.activation.fused.layers import MlpForm
from agoq_comm.activation.fused.mlp import ACTIVATIONS
from agoq_comm.activation.recognise_mlp import activation_of, mlp_of
from agoq_comm.activation.recognise_norm import norm_of

WIDTH, HIDDEN = 64, 128


class RmsNorm(nn.Module):
    """Written out, in one of the ways that models do."""

    def __init__(self, way: str, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.way, self.eps = way, eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        if self.way == "llama_rms_norm":
            return self.weight * y.to(x.dtype)
        if self.way == "rms_norm_rounded_last":
            return (self.weight * y).to(x.dtype)
        if self.way == "gemma_rms_norm":
            return (y * (1.0 + self.weight.float())).to(x.dtype)
        return self.weight * (y - 0.5).to(x.dtype)


class Gated(nn.Module):
    """One projection for the gate and its partner."""

    def __init__(self, function: Callable[..., torch.Tensor], gate: int, bias: bool = True) -> None:
        super().__init__()
        self.w_in = nn.Linear(WIDTH, 2 * HIDDEN, bias=bias)
        self.w_out = nn.Linear(HIDDEN, WIDTH, bias=bias)
        self.function, self.gate = function, gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.w_in(x).chunk(2, -1)
        return self.w_out(self.function(parts[self.gate]) * parts[1 - self.gate])


class Three(nn.Module):
    """A layer each for the gate, its partner and the way back, and two dropouts."""

    def __init__(self, act: nn.Module, width: int = WIDTH, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.w3, self.act = nn.Linear(width, hidden), act
        self.drop_out, self.drop_in = nn.Dropout(0.3), nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.drop_in(self.act(self.w1(x)) * self.w3(x))
        return self.drop_out(self.w2(hidden))


class Attention(nn.Module):
    """Sizes as those of a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).split([WIDTH, WIDTH // 2, WIDTH // 2], -1)
        q, k, v = (part.unflatten(-1, (-1, 16)).transpose(1, 2) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("way", ["llama_rms_norm", "rms_norm_rounded_last", "gemma_rms_norm"])
def test_norms_are_told_by_what_they_compute(way: str) -> None:
    module = RmsNorm(way, 1e-5)
    weight = module.weight
    spec = norm_of(module)
    assert not isinstance(spec, str) and spec is not None
    assert (spec.kind, spec.shape, spec.eps) == (way, (WIDTH,), 1e-5)
    assert module.weight is weight


def test_norms_of_torch_keep_their_numbers() -> None:
    spec = norm_of(nn.LayerNorm((4, WIDTH), eps=1e-3, bias=False))
    assert not isinstance(spec, str) and spec is not None
    assert (spec.kind, spec.shape, spec.eps) == ("layer_norm", (4, WIDTH), 1e-3)
    spec = norm_of(nn.RMSNorm(WIDTH))
    assert not isinstance(spec, str) and spec is not None and spec.eps is None


@pytest.mark.parametrize("gate", [0, 1])
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_the_gate_is_told_from_its_partner(kind: str, gate: int) -> None:
    form = mlp_of(Gated(ACTIVATIONS[kind].forward, gate))
    assert not isinstance(form, str) and form is not None
    assert (form.kind, form.gate, form.first, form.last) == (kind, gate, ("w_in",), "w_out")


@pytest.mark.parametrize("hidden", [HIDDEN, WIDTH])
def test_layers_and_dropouts_are_told_apart(hidden: int) -> None:
    form = mlp_of(Three(nn.SiLU(inplace=True), hidden=hidden))
    assert not isinstance(form, str) and form is not None
    assert (form.first, form.last, form.kind) == (("w1", "w3"), "w2", "silu")
    assert (form.inner_dropout, form.outer_dropout) == ("drop_in", "drop_out")


def test_what_limits_its_numbers_is_another_function() -> None:
    class LimitedGelu(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gelu(x).clamp(-10.0, 10.0)

    class Limited(Gated):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gate, up = self.w_in(x).chunk(2, -1)
            return self.w_out(F.silu(gate) * up.clamp(-self.gate, self.gate))

    assert isinstance(activation_of(nn.ReLU6()), str)
    assert isinstance(activation_of(LimitedGelu()), str)
    for limit in (7, 20, 100):
        assert isinstance(mlp_of(Limited(F.silu, limit)), str)


def test_tensors_of_its_own_count_whatever_is_in_them() -> None:
    class Scaled(Gated):
        def __init__(self, scale: torch.Tensor, used: bool = True) -> None:
            super().__init__(F.silu, 0)
            self.scale, self.used = scale, used

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y * self.scale if self.used else y

    class Counting(Gated):
        calls: torch.Tensor

        def __init__(self) -> None:
            super().__init__(F.silu, 0)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return super().forward(x)

    ones = nn.Parameter(torch.ones(WIDTH))
    module = Scaled(ones)
    assert isinstance(mlp_of(module), str) and module.scale is ones
    assert isinstance(mlp_of(Scaled(ones, used=False)), MlpForm)
    by_buffer, counting = Scaled(ones), Counting()
    del by_buffer.scale
    by_buffer.register_buffer("scale", torch.ones((), dtype=torch.int64))
    assert isinstance(mlp_of(by_buffer), str) and by_buffer.scale == 1
    reason = mlp_of(counting)
    assert isinstance(reason, str) and "changes buffers" in reason and counting.calls == 0


def test_what_is_done_in_training_counts() -> None:
    class Dropping(Gated):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(super().forward(x), 0.5, self.training)

    assert isinstance(mlp_of(Dropping(F.silu, 0).eval()), str)
    module = Three(nn.SiLU()).eval()
    form = mlp_of(module)
    assert isinstance(form, MlpForm)
    assert (form.inner_dropout, form.outer_dropout) == ("drop_in", "drop_out")
    assert not any(part.training for part in module.modules())


def test_looking_leaves_no_trace() -> None:
    module = Three(nn.SiLU())
    calls: list[nn.Module] = []
    for part in module.modules():
        part.register_forward_hook(lambda m, _x, _y: calls.append(m))
    children = dict(module.named_children())
    state = torch.random.get_rng_state()
    assert mlp_of(module) is not None
    assert not calls and dict(module.named_children()) == children
    assert torch.equal(torch.random.get_rng_state(), state)


def test_weights_may_be_anywhere_and_anything() -> None:
    with torch.device("meta"):
        model = nn.Sequential(RmsNorm("llama_rms_norm"), Gated(F.silu, 0))
    assert wrap_(model)["1"] == "gated silu MLP"
    model = nn.Sequential(RmsNorm("llama_rms_norm"), Gated(F.silu, 1))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    assert wrap_(model)["1"] == "gated silu MLP"


def test_the_default_type_does_not_matter() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        form = mlp_of(Gated(ACTIVATIONS["gelu"].forward, 1))
        assert torch.get_default_dtype() == torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)
    assert not isinstance(form, str) and form is not None and form.kind == "gelu"


def test_attention_is_no_mlp() -> None:
    assert mlp_of(Attention()) is None
    assert set(wrap_(nn.Sequential(Attention()))) == {"0", "0.qkv"}


def test_all_that_is_not_recognised_is_listed_and_nothing_changed() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2.0 * super().forward(x)

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights, self.act = nn.Parameter(torch.zeros(2, WIDTH, WIDTH)), nn.SiLU()

    class OtherActivation(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gelu(2.0 * x)

    class FailingNorm(RmsNorm):
        def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * gate

    model = nn.ModuleDict(
        {
            "good": nn.Linear(WIDTH, WIDTH),
            "norm": RmsNorm("shifted"),
            "two": FailingNorm("llama_rms_norm"),
            "mlp": Gated(F.mish, 0),
            "scaled": Scaled(WIDTH, WIDTH),
            "conv": nn.Conv1d(WIDTH, WIDTH, 1),
            "attention": nn.MultiheadAttention(WIDTH, 4),  # Which this policy keeps.
            "groups": nn.GroupNorm(4, WIDTH),
            "place": nn.ReLU(inplace=True),
            "other": OtherActivation(),
            "experts": Experts(),
            "embedding": nn.Embedding(4, WIDTH),
        }
    )
    classes = [type(module) for module in model.modules()]
    with pytest.raises(NotRecognised) as caught:
        wrap_(model)
    reasons = dict(caught.value.modules)
    assert set(reasons) == set(model) - {"good", "attention", "embedding"}
    assert "Scaled" in reasons["scaled"] and "nn.Linear" in reasons["scaled"]
    assert "to the bit" in reasons["norm"] and "silu" in reasons["mlp"]
    assert "TypeError" in reasons["two"] and "Conv1d" in reasons["conv"]
    assert "weights of its own" in reasons["experts"]
    assert "in place" in reasons["place"] and "last dimensions" in reasons["groups"]
    assert all(f"{name}: " in str(caught.value) for name in reasons)
    assert [type(module) for module in model.modules()] == classes
    rules = [Rule("keep", module=name) for name in reasons]
    kept = Policy(
        [
            *rules,
            Rule("keep", module="mlp.*"),
            Rule("keep", module="experts.*"),
            Rule("keep", module="attention*"),
        ],
        "int8",
    )
    assert wrap_(model, kept) == {"good": "linear"}


def test_a_policy_that_keeps_everything_changes_nothing() -> None:
    model = nn.Sequential(nn.RMSNorm(WIDTH), Gated(F.silu, 0), nn.Conv1d(1, 1, 1), Attention())
    assert wrap_(model, Policy.exact()) == {}


def test_small_tensors_are_kept() -> None:
    model = nn.Sequential(nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH))
    wrap_(model, Policy([Rule("int8", min_numel=4096)]))
    for rows, expected in ((32, {torch.float32}), (64, {torch.uint8, torch.float32})):
        kinds: set[torch.dtype] = set()
        with torch.autograd.graph.saved_tensors_hooks(lambda t, k=kinds: k.add(t.dtype), id):
            model(torch.randn(rows, WIDTH))
        assert kinds == expected


def test_a_module_under_two_names_is_one() -> None:
    shared = nn.Linear(WIDTH, WIDTH)
    assert wrap_(nn.ModuleList([shared, shared])) == {"0": "linear"}
