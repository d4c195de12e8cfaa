"""Activations in few bits within the loops of transformers, Lightning and accelerate."""

from __future__ import annotations

import builtins
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agoq_comm.activation import Accounting, compress
from agoq_comm.activation.cli import main
from agoq_comm.activation.integrations.per_forward import CompressedForward

VOCABULARY, ROWS, LENGTH, RATE = 128, 8, 32, 3e-3


def hooks_of_saved_tensors() -> bool:
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def model_of_transformers() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config)


def rows() -> list[dict[str, torch.Tensor]]:
    """Text that can be learned: each token is the one before plus one."""
    counted = [(torch.arange(LENGTH) + 13 * start) % VOCABULARY for start in range(ROWS)]
    return [{"input_ids": row, "labels": row} for row in counted]


def expect_saved(accounting: Accounting) -> None:
    """Half of the bytes at the most, and all of them let go."""
    assert accounting.stored_bytes == 0
    assert 0 < accounting.peak_stored_bytes < 0.5 * accounting.peak_original_bytes


def expect_untouched(model: nn.Module) -> None:
    assert not hooks_of_saved_tensors()
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert "forward" not in model.__dict__


def expect_close(losses: list[float], exact: list[float]) -> None:
    """The first loss precedes all gradients; the others follow gradients of four bits."""
    assert losses[0] == exact[0]
    assert losses != exact
    assert losses == pytest.approx(exact, rel=0.02)
    assert losses[-1] < 0.95 * losses[0]


# --- per_forward ---------------------------------------------------------------------------------


class Root(nn.Module):
    """Computes by itself, as small models do."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)

    def forward(self, x: torch.Tensor, fail: bool = False) -> torch.Tensor:
        hidden = F.silu(self.up(x))
        if fail:
            raise RuntimeError("in the middle")
        return self.down(hidden)


def test_a_call_stores_what_compress_around_it_stores() -> None:
    torch.manual_seed(0)
    model, x = Root(), torch.randn(32, 64)
    with compress(model) as context:
        right = model(x)
    expected = context.accounting.records
    right.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with CompressedForward(model) as attached:
        out = model(x)
        assert not hooks_of_saved_tensors()
        assert attached.accounting.records == expected
        out.sum().backward()
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.equal(p.grad, gradient)


def test_a_call_that_raises_leaves_nothing() -> None:
    model, x = Root(), torch.randn(32, 64)
    with CompressedForward(model) as attached:
        with pytest.raises(RuntimeError, match="in the middle"):
            model(x, fail=True)
        assert not hooks_of_saved_tensors()
        model(x).sum().backward()
        assert attached.accounting.peak_stored_bytes > 0
    expect_untouched(model)


def test_a_call_without_gradients_is_left_alone() -> None:
    model, x = Root(), torch.randn(32, 64)
    with CompressedForward(model) as attached, torch.no_grad():
        model(x)
        assert attached.accounting.records == []


def test_detached_below_what_someone_else_put_over_it() -> None:
    model, x = Root(), torch.randn(32, 64)
    attached = CompressedForward(model)
    ours = model.forward
    model.forward = lambda *args: ours(*args)
    attached.detach()
    model(x).sum().backward()
    assert attached.accounting.records == []


# --- transformers --------------------------------------------------------------------------------


def train(directory: Path, *callbacks: object) -> tuple[nn.Module, list[float]]:
    from transformers import Trainer, TrainingArguments

    model = model_of_transformers()
    arguments = TrainingArguments(
        str(directory),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=4,
        learning_rate=RATE,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
    )
    trainer = Trainer(model, arguments, train_dataset=rows(), callbacks=list(callbacks))
    trainer.train()
    return model, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_the_trainer_of_transformers(tmp_path: Path) -> None:
    from agoq_comm.activation.integrations.transformers import ActivationCallback

    callback = ActivationCallback()
    model, losses = train(tmp_path, callback)
    _, exact = train(tmp_path)
    expect_saved(callback.accounting)
    assert not hooks_of_saved_tensors()
    expect_untouched(model)
    expect_close(losses, exact)


def test_a_callback_before_its_training_has_nothing_to_tell() -> None:
    from agoq_comm.activation.integrations.transformers import ActivationCallback

    with pytest.raises(RuntimeError, match="no training has begun"):
        _ = ActivationCallback().accounting


# --- Lightning -----------------------------------------------------------------------------------


def fit(*callbacks: object, fail: bool = False, skipped: tuple[int, ...] = ()) -> list[float]:
    from lightning.pytorch import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model_of_transformers()
            self.losses: list[float] = []

        def on_train_batch_start(self, batch: dict[str, torch.Tensor], index: int) -> int | None:
            return -1 if index in skipped else None  # Skips the rest of the epoch.

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            loss = self.model(**batch).loss
            self.losses.append(loss.item())
            if fail:
                raise RuntimeError("in the middle")
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), RATE)

    module = Module()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = torch.utils.data.DataLoader(rows(), batch_size=2)
    trainer.fit(module, loader)
    return module.losses


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_lightning() -> None:
    from agoq_comm.activation.integrations.lightning import ActivationCallback

    callback = ActivationCallback()
    with pytest.raises(RuntimeError, match="no fit has begun"):
        _ = callback.accounting
    losses, exact = fit(callback), fit()
    expect_saved(callback.accounting)
    assert not hooks_of_saved_tensors()
    expect_close(losses, exact)


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_step_that_raises_leaves_nothing() -> None:
    from agoq_comm.activation.integrations.lightning import ActivationCallback

    with pytest.raises(RuntimeError, match="in the middle"):
        fit(ActivationCallback(), fail=True)
    assert not hooks_of_saved_tensors()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("skipped,losses", [(0, 0), (2, 4)])
def test_a_batch_that_a_lightning_module_skips(skipped: int, losses: int) -> None:
    """Lightning calls no end of such a batch."""
    from agoq_comm.activation.integrations.lightning import ActivationCallback

    assert len(fit(ActivationCallback(), skipped=(skipped,))) == losses
    assert not hooks_of_saved_tensors()


# --- accelerate ----------------------------------------------------------------------------------


def loop(compressed: bool) -> tuple[list[float], Accounting | None]:
    """The loop of docs/activation_report.md."""
    from accelerate import Accelerator

    from agoq_comm.activation.integrations.accelerate import compress_prepared

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = model_of_transformers()
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    loader = torch.utils.data.DataLoader(rows(), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    attached = compress_prepared(accelerator, model) if compressed else None
    losses = []
    for _ in range(4):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    del loss
    return losses, attached.accounting if attached else None


def test_accelerate() -> None:
    losses, accounting = loop(True)
    exact, _ = loop(False)
    assert accounting is not None
    expect_saved(accounting)
    expect_close(losses, exact)


# --- without them --------------------------------------------------------------------------------


def test_importing_needs_none_of_them() -> None:
    code = (
        "import sys, agoq_comm.activation, agoq_comm.activation.cli\n"
        "print([m for m in ('transformers', 'lightning', 'accelerate', 'rich', 'matplotlib')"
        " if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize("package", ["transformers", "lightning"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"agoq_comm.activation.integrations.{package}", raising=False)
    found = importlib.import_module

    def without(name: str, *others: object) -> object:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=package)
        return found(name, *others)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        builtins.__import__(f"agoq_comm.activation.integrations.{package}")


# --- the command, on models of transformers ------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt2"])
def test_the_command_on_a_built_in_model(name: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    arguments = ["report", "--model", name, "--batch", "1", "--seq", "32", "--layers", "1"]
    assert main([*arguments, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["compressed"]["held"] == pytest.approx(found["stored_bytes"], rel=0.03)
    modules = {row["module"] for row in found["rows"]}
    assert any(".0." in module for module in modules)
    assert not any(".1." in module for module in modules)


def test_the_command_on_a_folder(tmp_path: Path) -> None:
    model_of_transformers().config.save_pretrained(tmp_path)
    path = tmp_path / "report.json"
    for model in (tmp_path, tmp_path / "config.json"):
        arguments = ["--model", str(model), "--batch", "1", "--seq", "16", "--json", str(path)]
        assert main(["report", *arguments]) == 0
        assert json.loads(path.read_text())["stored_bytes"] > 0


def test_the_command_says_why_there_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for model, message in (
        ("somebody/some-model", "cannot be fetched from the hub"),
        ("./nowhere", "there is no folder ./nowhere"),
        (str(tmp_path), "holds no configuration"),
    ):
        assert main(["report", "--model", model]) == 1
        assert message in capsys.readouterr().err
