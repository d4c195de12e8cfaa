"""Models for the tests of `wrap_`, and what they hold between the passes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from llama_model import Llama, LlamaConfig, next_token_loss

BATCH, LENGTH, WIDTH, HEADS = 2, 96, 128, 4
HUGGING_FACE = ("Llama", "Qwen2", "Qwen3", "Mistral")

Loss = Callable[[], torch.Tensor]
Gradients = dict[str, torch.Tensor]


def demo(layers: int = 2, hidden: int = 4 * WIDTH) -> Llama:
    """Return the model of the demo, with a small vocabulary."""
    torch.manual_seed(0)
    config = LlamaConfig(vocabulary=64, width=WIDTH, layers=layers, heads=HEADS, hidden=hidden)
    return Llama(config, LENGTH)


def hugging_face(family: str, layers: int = 2, **options: object) -> nn.Module:
    """Return a tiny model of transformers with random weights."""
    import transformers

    torch.manual_seed(0)
    settings = dict(
        vocab_size=64,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=WIDTH // HEADS,
        max_position_embeddings=LENGTH,
        use_cache=False,
        pad_token_id=0,
    )
    config = getattr(transformers, f"{family}Config")(**{**settings, **options})
    return getattr(transformers, f"{family}ForCausalLM")(config)


class Functional(nn.Module):
    """An MLP whose activation function is no module."""

    def __init__(
        self, function: Callable[..., torch.Tensor] = F.gelu, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop, self._function = nn.Dropout(dropout), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.c_proj(self._function(self.c_fc(x))))


class Gpt(nn.Module):
    """A layer with LayerNorm, biases, dropout, no rotary positions."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.ModuleDict(
            {"qkv": nn.Linear(WIDTH, 3 * WIDTH), "out": nn.Linear(WIDTH, WIDTH)}
        )
        self.mlp = mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.attn["qkv"](self.ln_1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["out"](mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


def sequential(dropout: float = 0.0) -> nn.Module:
    """Return an MLP that drops twice."""
    return nn.Sequential(
        nn.Linear(WIDTH, 4 * WIDTH),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(4 * WIDTH, WIDTH),
        nn.Dropout(dropout),
    )


def tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(1, 64, (BATCH, length), generator=torch.Generator().manual_seed(1))


def loss_of(model: nn.Module) -> torch.Tensor:
    """Compute a loss: of either kind of model, or of one that maps features to features."""
    if isinstance(model, Llama):
        return next_token_loss(model, tokens(LENGTH + 1))
    if hasattr(model, "config"):
        return model(tokens(), labels=tokens()).loss
    return F.mse_loss(model(features()), torch.zeros(()).expand(BATCH, LENGTH, WIDTH))


def features(**options: object) -> torch.Tensor:
    x = torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(2))
    return x.to(**options) if options else x


def gradients(model: nn.Module) -> tuple[torch.Tensor, Gradients]:
    """Return a loss and the gradients of all parameters."""
    model.zero_grad()
    loss = loss_of(model)
    loss.backward()
    return loss.detach(), {
        name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
    }


def error(found: Gradients, exact: Gradients) -> float:
    """Return the relative error of all gradients together, in the L2 norm."""
    assert found.keys() == exact.keys()
    lost = sum(float((found[n].double() - exact[n].double()).square().sum()) for n in exact)
    return (lost / sum(float(g.double().square().sum()) for g in exact.values())) ** 0.5


def held(model: nn.Module, run: Loss) -> int:
    """Count the bytes that the graph of what `run` returns holds, each storage once."""
    own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage  # Alive, so that no other one gets its address.
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = run()
    assert output.requires_grad
    return sum(s.nbytes() for address, s in storages.items() if address not in own)


def held_by_layer(make: Callable[[int], nn.Module]) -> float:
    """Return what one more layer holds, in units of two bytes for each feature."""
    one, two = (held(model, lambda model=model: loss_of(model)) for model in map(make, (1, 2)))
    return (two - one) / (2 * BATCH * LENGTH * WIDTH)
