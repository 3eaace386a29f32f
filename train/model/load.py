"""Loads models from disk or hub for training and evaluation: adapters or full models, 4-bit bases (QLoRA), dropout off.

graph/models/ reads the files. The path of an adapter's base model may be relative to the working directory, as in training."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Literal

import torch
from torch.nn.modules.dropout import _DropoutNd
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BitsAndBytesConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)
from transformers import logging as transformers_logging

from graph.errors import UserError
from graph.models.catalogue import resolve
from graph.models.checkpoint import ADAPTER_CONFIG, adapter_base, check_base, is_adapter, tokenizer_source
from graph.models.load import check_vocabulary, load_adapter, load_full_model, read_tokenizer
from graph.shared.hub import only_in_cache, quiet_loading
from train.model.trial import check_model


def four_bit_config() -> BitsAndBytesConfig:
    """The configuration of a base model quantised to 4 bits (NF4); UserError if bitsandbytes is not installed."""
    if importlib.util.find_spec("bitsandbytes") is None:
        found = "quantise = nf4 without bitsandbytes"
        raise UserError(found, "the package bitsandbytes", "pip install 'modegraph[qlora]', or set quantise to none")
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def prepare_for_adapter_training(model: Any) -> Any:
    """A 4-bit model prepared for training an adapter: frozen, with float32 for weights that are not quantised, and without repacking.

    On CPUs with AVX512-BF16, bitsandbytes repacks a layer's weights at its first pass without gradients, after which the
    layer silently blocks gradients; the layers' flag for these instructions is cleared.
    """
    from bitsandbytes.nn.modules import Linear4bit
    from peft import prepare_model_for_kbit_training

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


JITTER = ("jitter_noise", "input_jitter_noise")
"""Rates of noise at a router's input. PhiMoE's `router_jitter_noise` is not such a rate: it selects experts in evaluation, too."""


def without_dropout(model: Any) -> None:
    """Set every rate of dropout, layer dropout and router jitter to 0, in place: those of modules, and of configurations read at each pass."""
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        _clear_rates(module)


def _clear_rates(holder: Any) -> None:
    for name, value in list(vars(holder).items()):
        if isinstance(value, float) and ("drop" in name or name in JITTER):
            setattr(holder, name, 0.0)
        elif isinstance(value, PretrainedConfig):
            _clear_rates(value)


Precision = Literal["float32", "bfloat16"]
Quantisation = Literal["none", "nf4"]
Head = Literal["tokens", "score"]
NEW_HEADS = ("score", "classifier")
"""transformers' names for the head of a reward model, which a language model lacks."""


def load_policy(source: str, precision: Precision = "float32") -> tuple[Any, PreTrainedTokenizerBase]:
    """(model, tokenizer) ready to generate and to score: evaluation mode, dropout off, on the GPU if there is one.

    `source` is a model's folder, an adapter's folder or a hub name. UserError if it, or an adapter's base, is missing, if the
    tokenizer does not suit the model, or if the model's log-probabilities are not those of a causal model (train/model/trial.py).
    """
    model = load_model(source, precision).to(device()).eval().requires_grad_(False)
    tokenizer = load_tokenizer(source)
    check_vocabulary(model, tokenizer, f"model {source!r}")
    check_model(model)
    return model, tokenizer


def load_model(
    source: str,
    precision: Precision,
    trainable: bool = False,
    quantisation: Quantisation = "none",
    head: Head = "tokens",
) -> Any:
    """A full model, or an adapter on its base (a PeftModel whose adapter is trained only if `trainable`).

    With `head` score it is a reward model: its output is one number per text instead of the next token's logits.
    """
    quiet_transformers()
    cached = check_source(source)
    if not is_adapter(source):
        return _load_base(source, precision, quantisation, head, cached)
    base = adapter_base(source)
    if not _is_present(base):
        found = f"{Path(source) / ADAPTER_CONFIG}: base model {base!r} does not exist in {Path.cwd()}"
        remedy = "run the command in the folder in which the adapter was trained"
        raise UserError(found, "the base model that the adapter was trained on", remedy)
    cached = check_source(base)
    check_base(source, base)
    model = load_adapter(_load_base(base, precision, quantisation, head, cached), resolve(source), base, trainable)
    # PEFT reads this when it saves, and would search the hub for a name of the catalogue.
    for config in model.peft_config.values():
        config.base_model_name_or_path = resolve(base)
    return model


def load_tokenizer(source: str) -> PreTrainedTokenizerBase:
    """A model's tokenizer, with chat template, end token and pad token; UserError if it lacks one of the first two."""
    cached = check_source(source)
    tokenizer: PreTrainedTokenizerBase = read_tokenizer(tokenizer_source(source), source, local_files_only=cached)
    if tokenizer.chat_template is None:
        remedy = "choose its instruct variant, or put a chat_template.jinja next to its tokenizer"
        raise UserError(f"{source}: its tokenizer has no chat template", "a chat (instruct) model", remedy)
    if tokenizer.eos_token is None:
        remedy = "set eos_token in its tokenizer_config.json, to the token with which the chat template ends a turn"
        raise UserError(f"{source}: its tokenizer has no end token", "a chat (instruct) model", remedy)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    return tokenizer


def check_source(source: str) -> bool:
    """Whether the model `source` is available from the hub's cache only, because the hub cannot be reached.

    UserError if it looks like a path and does not exist, or is a folder without a model.
    """
    if not _is_present(source):
        raise UserError(f"model {source!r}: no such folder", "a model's folder, a run or a hub name", "check the path")
    folder = Path(resolve(source))
    if not folder.exists():
        return only_in_cache(resolve(source), f"model {source!r}")
    if not (folder / "config.json").exists() and not (folder / ADAPTER_CONFIG).exists():
        found = f"model {source!r}: neither config.json nor {ADAPTER_CONFIG}"
        raise UserError(found, "a model's folder or a run", "check the path")
    return False


def device() -> str:
    """The device that models run on: "cuda" if there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def quiet_transformers() -> None:
    """Silence transformers' loading bars and hints, but not its errors."""
    transformers_logging.set_verbosity_error()
    quiet_loading()


def _load_base(source: str, precision: Precision, quantisation: Quantisation, head: Head, cached: bool) -> Any:
    """The full model; if quantised, prepared for training an adapter. With `cached`, it is read from the hub's cache without a request to the hub."""
    options: dict[str, Any] = {"dtype": getattr(torch, precision), "local_files_only": cached}
    if quantisation != "none":
        options["quantization_config"] = four_bit_config()
    kind = AutoModelForCausalLM
    if head == "score":
        kind = AutoModelForSequenceClassification
        options |= {"new_modules": NEW_HEADS, "num_labels": 1}
    model = load_full_model(kind, resolve(source), f"model {source!r}", **options)
    return model if quantisation == "none" else prepare_for_adapter_training(model)


def _is_present(source: str) -> bool:
    """Whether a model exists here or may be on the hub, whose names are `name` or `owner/name`."""
    return Path(source).exists() or (source.count("/") <= 1 and not source.startswith((".", "/", "~")))
