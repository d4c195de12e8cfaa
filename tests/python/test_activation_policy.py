"""Rules, what they match, and the policies there are."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from agoq_comm.activation import Format, Policy, Rule, Site
from agoq_comm.activation.tensor_classes import classify

BIG = (8, 512)


class LlamaAttention(nn.Module):
    """Only its name matters here."""


class BertSelfOutput(nn.Module):
    """The same."""


class LlamaMLP(nn.Module):
    """The same."""


class BertIntermediate(nn.Module):
    """The same."""


class GELUActivation(nn.Module):
    """The same."""


class T5DenseActDense(nn.Module):
    """The same."""


class LlamaRMSNorm(nn.Module):
    """The same."""


class ToyForCausalLM(nn.Module):
    """The same."""


def site(module="layer", types=(nn.Module,), dtype=torch.float32, shape=BIG, operation=""):
    return Site(module, types, dtype, shape, operation)


@pytest.mark.parametrize(
    "rule,matching,other",
    [
        (Rule("int8", module="*.mlp.*"), site("h.0.mlp.up"), site("h.0.attn.q")),
        (Rule("int8", module=r"re:h\.[02]\."), site("h.2.x"), site("h.1.x")),
        (Rule("int8", type=nn.Linear), site(types=(nn.Linear,)), site(types=(nn.Conv2d,))),
        (Rule("int8", type="*MLP"), site(types=(LlamaMLP,)), site(types=(LlamaMLP, nn.SiLU))),
        (Rule("int8", type="_ConvNd"), site(types=(nn.Conv2d,)), site(types=(nn.Linear,))),
        (Rule("int8", inside=LlamaMLP), site(types=(LlamaMLP, nn.SiLU)), site()),
        (Rule("int8", dtype="bfloat16"), site(dtype=torch.bfloat16), site()),
        (Rule("int8", dtype=torch.float16), site(dtype=torch.float16), site()),
        (Rule("int8", min_numel=100), site(shape=(100,)), site(shape=(99,))),
        (Rule("int8", max_row=1), site(shape=(512, 1)), site(shape=(1, 512))),
        (Rule("int8", max_row=1), site(shape=()), site(shape=(2,))),
        (Rule("int8", operation="Relu*"), site(operation="Relu"), site(operation="Gelu")),
        (Rule("int8", tensor_class="norm"), site(types=(nn.LayerNorm,)), site()),
    ],
    ids=lambda value: repr(value.to_dict()) if isinstance(value, Rule) else "",
)
def test_a_rule_matches_what_it_says(rule, matching, other):
    policy = Policy([rule])
    assert policy.decide(matching).format == Format("int8")
    assert policy.decide(other).format is None


def test_the_first_rule_that_matches_decides_and_the_default_else():
    policy = Policy(
        [Rule("keep", module="a", reason="said so"), Rule("int8", module="[ab]")], "fp4"
    )
    assert policy.decide(site("a")).format is None
    assert policy.decide(site("a")).reason == "said so"
    assert policy.decide(site("b")).format == Format("int8")
    assert policy.decide(site("c")).format == Format("fp4")


def test_integers_bools_and_complex_are_kept_whatever_the_rules():
    for dtype in (torch.int64, torch.bool, torch.complex64, torch.float64):
        decision = Policy(default="fp4").decide(site(dtype=dtype))
        assert decision.format is None
        assert "is not quantized" in decision.reason


@pytest.mark.parametrize(
    "module,types,operation,expected",
    [
        ("h.0.attn", (LlamaAttention,), "", "attention"),
        ("h.0.attn.q_proj", (LlamaAttention, nn.Linear), "", "linear"),
        ("h.0.attn.o_proj", (LlamaAttention, nn.Linear), "", "attention"),
        ("h.0.attn.to_out.0", (LlamaAttention, nn.Sequential, nn.Linear), "", "attention"),
        ("h.0.attn.drop", (LlamaAttention, nn.Dropout), "", "attention"),
        ("h.0.attn.q_norm", (LlamaAttention, LlamaRMSNorm), "", "norm"),
        ("h.0.norm", (nn.RMSNorm,), "", "norm"),
        ("h.0.norm", (nn.LayerNorm,), "", "norm"),
        ("h.0.mlp", (LlamaMLP,), "", "mlp"),
        ("h.0.mlp.act", (LlamaMLP, nn.SiLU), "", "mlp"),
        ("h.0.mlp.down", (LlamaMLP, nn.Linear), "", "linear"),
        ("h.0.intermediate", (BertIntermediate, GELUActivation), "", "mlp"),
        ("h.0.intermediate.act", (BertIntermediate, nn.Identity), "", "mlp"),
        ("h.0.wi", (T5DenseActDense,), "", "mlp"),
        ("emb", (nn.Embedding,), "", "embedding"),
        ("h.0", (nn.Module,), "", "other"),
        ("", (ToyForCausalLM,), "", "loss"),
        ("drop", (ToyForCausalLM, nn.Dropout), "", "other"),
        ("", (), "", "loss"),
        ("", (nn.Module,), "LogSoftmax", "loss"),
        ("h.0", (nn.Module,), "ScaledDotProductFlashAttentionForCpu", "attention"),
        ("h.0", (nn.Module,), "Softmax", "attention"),
        ("h.0.mha", (nn.MultiheadAttention,), "", "attention"),
    ],
)
def test_classes_of_tensors(module, types, operation, expected):
    assert classify(module, types, operation) == expected


def test_the_policy_after_the_paper():
    policy = Policy.agoq()
    assert policy.recompute
    fp4 = Format("fp4", 128)
    assert policy.decide(site("h.0.norm", (nn.RMSNorm,))).format == Format("e2m3", 128)
    assert policy.decide(site("h.0.mlp", (LlamaMLP,))).format == fp4
    assert policy.decide(site("h.0.attn.qkv", (LlamaAttention, nn.Linear))).format == fp4
    for kept in (
        site("h.0.attn", (LlamaAttention,)),
        site("h.0.attn.out", (LlamaAttention, nn.Linear)),
        site("h.0.norm", (nn.RMSNorm,), shape=(4096, 1)),
        site("", ()),
        site("h.0.mlp.down", (LlamaMLP, nn.Linear), operation="Relu"),
        site("h.0.norm", (nn.RMSNorm,), shape=(1, 512)),
        site("h.0.mlp.act", (LlamaMLP, nn.ReLU6), operation="Addmm"),
        site("h.0.mlp", (LlamaMLP,), operation="Sqrt"),
        site("h.0", (nn.Module,), operation="Addmm"),
        site("h.0", (nn.Module,), operation="Leaf"),
    ):
        decision = policy.decide(kept)
        assert decision.format is None
        assert decision.reason


@pytest.mark.parametrize(
    "arguments,expected",
    [
        (("fp4/64/fp32",), "e2m3/64/fp32"),
        (("int4",), "e2m3/128"),
        (("e2m3",), "e2m3/128"),
        (("int6",), "int6/128"),
        (("int8/256",), "int8/256"),
        (("fp4", "fp4"), "fp4/128"),  # The paper's.
        (("fp4", "int8/64"), "int8/64"),
    ],
)
def test_norms_have_six_bits_or_what_is_asked_for(arguments, expected):
    policy = Policy.agoq(*arguments)
    assert str(policy.decide(site("h.0.norm", (nn.LayerNorm,))).format) == expected
    rest = policy.decide(site("h.0.mlp", (LlamaMLP,))).format
    assert rest == Format.parse(arguments[0])


def test_the_control_includes_attention():
    policy = Policy.uniform("int4")
    assert policy.decide(site("h.0.attn", (LlamaAttention,))).format == Format("int4")
    assert policy.decide(site("", ())).format is None
    assert not policy.recompute


@pytest.mark.parametrize("policy", [Policy.agoq("e2m3/64"), Policy.uniform(), Policy.exact()])
def test_a_policy_comes_back_from_json(policy):
    assert Policy.from_dict(json.loads(json.dumps(policy.to_dict()))) == policy


def test_a_rule_on_a_class_comes_back_as_one_on_its_name():
    policy = Policy([Rule("int8", type=nn.Linear, inside=LlamaMLP, dtype=torch.bfloat16)], "fp4/64")
    back = Policy.from_dict(json.loads(json.dumps(policy.to_dict())))
    expected = Rule("int8", type="Linear", inside="LlamaMLP", dtype="bfloat16")
    assert back == Policy([expected], "fp4/64")


def test_what_is_wrong_is_said_when_the_rule_is_made():
    with pytest.raises(ValueError, match="there are fp4"):
        Rule("fp3")
    with pytest.raises(ValueError, match="there are embedding, norm"):
        Rule("fp4", tensor_class="query")
    with pytest.raises(ValueError, match="none of torch's"):
        Rule("fp4", dtype="bf17")
    with pytest.raises(ValueError, match="min_numel is -1; it is a number of elements"):
        Rule("fp4", min_numel=-1)
    with pytest.raises(ValueError, match="max_row is -3; it is a number of elements"):
        Rule("fp4", max_row=-3)
    with pytest.raises(ValueError, match=r"a rule has no nope: .*'nope': 1"):
        Policy.from_dict({"rules": [{"format": "keep", "nope": 1}]})
    with pytest.raises(ValueError, match=r"a rule needs a format: .*'module'"):
        Policy.from_dict({"rules": [{"module": "*"}]})
    with pytest.raises(ValueError, match="a policy has no rule"):
        Policy.from_dict({"rule": []})
