"""Models that `python -m agoq_comm.activation report` can be asked about, with random weights."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from agoq_comm.activation.integrations.optional import require

_SMALL = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
#: Small configurations of transformers by name: type of the model, and its sizes.
BUILT_IN: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "tiny-llama": ("llama", _SMALL),
    "tiny-mistral": ("mistral", _SMALL),
    "tiny-qwen2": ("qwen2", _SMALL),
    "tiny-gpt2": ("gpt2", {"vocab_size": 512, "n_embd": 256, "n_layer": 2, "n_head": 8}),
}


class ModelError(ValueError):
    """No model can be made of what was asked for."""


class Trainable(NamedTuple):
    """A model, and a step of its training."""

    model: nn.Module
    step: Callable[[], torch.Tensor]


def load(
    name: str,
    *,
    batch: int,
    seq: int,
    layers: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Trainable:
    """Make the model that a name stands for.

    Parameters
    ----------
    name : str
        One of `BUILT_IN`; the folder of a Hugging Face model or of its config.json; the name of one
        on the hub, of which the configuration is fetched; or ``module:function``, a function of
        (batch, seq) that returns the model and a function of nothing that returns the loss.
    batch, seq : int
        Sequences, and tokens of each.
    layers : int, optional
        Layers instead of the configuration's: what a layer saves does not depend on it.
    dtype : torch.dtype
        Of weights and activations.
    device : str
        Where it runs.

    Raises
    ------
    ModelError
        With a sentence that says why there is none.
    """
    if ":" in name and not Path(name).exists():
        return _from_function(name, batch, seq, dtype, device)
    config = _config(name)
    if layers is not None:
        _set_layers(config, layers)
    transformers = require("transformers", f"the model {name}")
    try:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    except ValueError as error:
        raise ModelError(f"{name} is no causal language model of transformers: {error}") from error
    model.to(device).train()
    ids = torch.randint(0, config.get_text_config().vocab_size, (batch, seq), device=device)
    return Trainable(model, lambda: model(input_ids=ids, labels=ids, use_cache=False).loss)


def _config(name: str) -> Any:
    auto_config = require("transformers", f"the model {name}").AutoConfig
    if name in BUILT_IN:
        kind, sizes = BUILT_IN[name]
        return auto_config.for_model(kind, **sizes)
    path = Path(name)
    if path.suffix == ".json" and path.is_file():
        path = path.parent
    if not path.is_dir() and (path.is_absolute() or name.startswith(".")):
        raise ModelError(f"there is no folder {name}")
    try:
        return auto_config.from_pretrained(str(path) if path.is_dir() else name)
    except Exception as error:  # What a failed download raises differs by its cause and version.
        if path.is_dir():
            raise ModelError(f"{name} holds no configuration of transformers: {error}") from error
        raise ModelError(
            f"the configuration of {name} cannot be fetched from the hub, and there is no folder "
            f"of that name. Name a folder with a config.json, module:function, or one of "
            f"{', '.join(BUILT_IN)}. The cause: {_first_line(error)}"
        ) from error


def _set_layers(config: Any, layers: int) -> None:
    # transformers gives every configuration this name beside its own, such as n_layer.
    text = config.get_text_config()
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]


def _from_function(name: str, batch: int, seq: int, dtype: torch.dtype, device: str) -> Trainable:
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # As `python -c` does: modules of the working folder.
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{name} cannot be imported: {error}") from error
    made = function(batch, seq)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise ModelError(
            f"{name} returned {type(made).__name__}; it must return the model, and a function of "
            f"nothing that runs it and returns the loss"
        )
    model, step = made
    model.to(device=device, dtype=dtype).train()
    return Trainable(model, step)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
