"""The examples' split model: it is the whole one, and every variant of its training runs."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples"))

from agoq_comm import sequence_parallel as sp  # noqa: E402
from checks import Checks  # noqa: E402
from llama_model import Llama, LlamaConfig, next_token_loss  # noqa: E402
from parallel_llama import ParallelLlama  # noqa: E402
from ranks import Rank  # noqa: E402
from train_parallel_llama import VARIANTS, ParallelConfig, train  # noqa: E402

checks = Checks()
TINY = LlamaConfig(width=32, layers=2, heads=4, hidden=48)


@checks
def the_split_model_is_the_whole_one(me: Rank) -> None:
    pair = [dist.new_group([first, first + 1]) for first in (0, 2)][me.rank // 2]
    torch.manual_seed(1)
    whole = Llama(TINY, 16)
    split = ParallelLlama(whole, pair)
    rows = torch.randint(256, (3, 17))
    with sp.use_policy(sp.EXACT):
        loss = next_token_loss(split, rows)
    loss.backward()
    right = next_token_loss(whole, rows)
    right.backward()
    torch.testing.assert_close(loss, right)

    def near(actual: torch.Tensor, exact: torch.Tensor) -> None:
        torch.testing.assert_close(actual, exact, rtol=1e-4, atol=1e-7)

    near(split.embedding.weight.grad, whole.embedding.weight.grad)
    near(split.norm.weight.grad, whole.norm.weight.grad)
    near(split.head.weight.grad, whole.head.weight.grad.chunk(2)[pair.rank()])
    for mine, theirs in zip(split.blocks, whole.blocks, strict=True):
        near(mine.attention_norm.weight.grad, theirs.attention_norm.weight.grad)
        near(mine.out.weight.grad, theirs.attention.out.weight.grad.chunk(2, 1)[pair.rank()])
        near(mine.down.weight.grad, theirs.mlp.down.weight.grad.chunk(2, 1)[pair.rank()])
        for actual, fused, parts in (
            (mine.qkv, theirs.attention.qkv, 3),
            (mine.gate_up, theirs.mlp.gate_up, 2),
        ):
            own = [part.chunk(2)[pair.rank()] for part in fused.weight.grad.chunk(parts)]
            near(actual.weight.grad, torch.cat(own))
    assert len(split.split_parameters()) == 4 * TINY.layers + 1


@checks
def every_variant_trains(me: Rank) -> None:
    sent = {}
    for variant in VARIANTS:
        config = ParallelConfig(
            variant=variant, seed=0, steps=3, micro_batches=2, batch=2, length=32,
            evaluate_every=3, validation_rows=8, learning_rate=1e-3,
            width=128, layers=1, heads=4, hidden=64,
        )  # fmt: skip
        result = train(config)
        assert result["training_losses"][-1] < result["training_losses"][0], variant
        assert [step for step, _ in result["validation_curve"]] == [0, 3]
        counters = result["sent_between_model_ranks"].values()
        sent[variant] = sum(each["wire_bytes"] for each in counters)
        errors = result["errors_of_sums"]
        assert ("ring" in variant or "reduce" in variant) == bool(errors), variant
        if errors:
            # Eight windows are eight ranks.
            least = min(errors.values())
            assert 0.001 < least < errors.get("ring", 0.5) <= 0.5, errors
    sp.set_default_policy(sp.QuantizationPolicy())
    # Logits and norms' gradients travel exactly in all of them.
    assert sent["activations"] == sent["both"] < 0.8 * sent["exact"], sent
