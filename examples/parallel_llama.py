"""The LLaMA-style decoder of this folder, split by tensor and by sequence between ranks.

Around attention and feed-forward each rank holds its part of the sequence; inside, its heads and
its hidden features. Tensors are length x batch x width, so that parts of the sequence are
contiguous.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from agoq_comm import sequence_parallel as sp
from llama_model import Llama, rotate


def _grouped(linear: nn.Linear, fused: int, ranks: int) -> nn.Linear:
    """Reorder a layer of `fused` layers in one, so that each rank's part holds a part of each."""
    result = nn.Linear(linear.in_features, linear.out_features, bias=False)
    parts = [weight.chunk(ranks) for weight in linear.weight.detach().chunk(fused)]
    result.weight.data = torch.cat([part[rank] for rank in range(ranks) for part in parts])
    return result


class _Norm(nn.Module):
    """RMSNorm of a part of the sequence, which the following layer sends as the norm encoded it.

    Its weight's gradient is the sum over all parts.
    """

    def __init__(self, norm: nn.RMSNorm, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.weight = nn.Parameter(norm.weight.detach().clone())
        self.epsilon = norm.eps
        self._group = group

    def forward(self, x: torch.Tensor) -> sp.Normed:
        """`x` is a part of length x batch x width."""
        return sp.rms_norm(x, self._shared_weight(), self.epsilon, self._group)

    def after(
        self, layer: sp.RowParallelLinear, x: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, sp.Normed]:
        """Add what the layer makes of `x` to the residual; the sum, and its norm."""
        return layer.into_norm(x, residual, self._shared_weight(), self.epsilon)

    def _shared_weight(self) -> torch.Tensor:
        return sp.copy_to_tensor_model_parallel_region(self.weight, self._group, policy=sp.EXACT)


class _Block(nn.Module):
    """One layer."""

    def __init__(self, block: nn.Module, group: dist.ProcessGroup) -> None:
        super().__init__()
        ranks = group.size()
        self.heads = block.attention.heads // ranks
        self.attention_norm = _Norm(block.attention_norm, group)
        self.qkv = sp.ColumnParallelLinear(_grouped(block.attention.qkv, 3, ranks), group)
        self.out = sp.RowParallelLinear(block.attention.out, group)
        self.mlp_norm = _Norm(block.mlp_norm, group)
        self.gate_up = sp.ColumnParallelLinear(_grouped(block.mlp.gate_up, 2, ranks), group)
        self.down = sp.RowParallelLinear(block.mlp.down, group)

    def forward(
        self,
        x: torch.Tensor,
        normed: sp.Normed,
        cos: torch.Tensor,
        sin: torch.Tensor,
        following: _Norm,
    ) -> tuple[torch.Tensor, sp.Normed]:
        """`x` is this rank's part of length x batch x width, `normed` what attention_norm made.

        Returns the next x, and what the norm that follows the layer makes of it.
        """
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3)
            for part in self.qkv(normed).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True
        )
        x, normed = self.mlp_norm.after(self.out, mixed.permute(2, 0, 1, 3).flatten(2), x)
        gate, up = self.gate_up(normed).chunk(2, dim=-1)
        return following.after(self.down, F.silu(gate) * up, x)


class ParallelLlama(nn.Module):
    """A copy of `whole`, which is the same on all ranks of `group`."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, whole: Llama, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(
            whole.embedding.weight.detach().clone(), freeze=False
        )
        self.blocks = nn.ModuleList(_Block(block, group) for block in whole.blocks)
        self.norm = _Norm(whole.norm, group)
        self.head = sp.ColumnParallelLinear(whole.head, group)
        self.register_buffer("cos", whole.cos.clone(), persistent=False)
        self.register_buffer("sin", whole.sin.clone(), persistent=False)
        self._group = group

    def split_parameters(self) -> set[nn.Parameter]:
        """Return those of which each rank has a part; the others are equal on all ranks."""
        return {
            parameter
            for module in self.modules()
            if isinstance(module, sp.ColumnParallelLinear | sp.RowParallelLinear)
            for parameter in module.parameters()
        }

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map batch x length tokens to batch x length x vocabulary logits, on every rank."""
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        x = self.embedding(tokens.t())
        x = sp.scatter_to_sequence_parallel_region(x, self._group)
        norms = [*(block.attention_norm for block in self.blocks), self.norm]
        normed = norms[0](x)
        for block, following in zip(self.blocks, norms[1:], strict=True):
            x, normed = block(x, normed, cos, sin, following)
        logits = sp.gather_from_tensor_model_parallel_region(
            self.head(normed), self._group, policy=sp.EXACT
        )
        return logits.transpose(0, 1)
