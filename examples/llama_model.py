"""A LLaMA-style decoder: RMSNorm before each half, rotary attention, SwiGLU, no biases."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of the model; the defaults have 3.3 million parameters."""

    vocabulary: int = 256
    width: int = 256
    layers: int = 4
    heads: int = 8
    hidden: int = 688
    rotary_base: float = 10_000.0

    def __post_init__(self) -> None:
        if self.width % (2 * self.heads) != 0:
            raise ValueError(
                f"width {self.width} is not an even number of features for {self.heads} heads"
            )


def rotary_tables(config: LlamaConfig, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, each `length` x half a head's width."""
    half = config.width // config.heads // 2
    frequencies = config.rotary_base ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn each pair (x[i], x[i + half]) by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """`x` is batch x length x width."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class SwiGlu(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` is batch x length x width."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.attention = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.mlp = SwiGlu(config)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """`x` is batch x length x width."""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    """The decoder: tokens in, logits of the next token out. `length` is the longest input."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, config: LlamaConfig, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        cos, sin = rotary_tables(config, length)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialize(config)

    def _initialize(self, config: LlamaConfig) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # Each block adds two terms to the residual stream; smaller ones keep its variance.
                closes_branch = name.endswith(("out.weight", "down.weight"))
                scale = (2 * config.layers) ** -0.5 if closes_branch else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map batch x length tokens to batch x length x vocabulary logits."""
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def next_token_loss(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy, in nats, of predicting rows[:, 1:] from rows[:, :-1]."""
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
