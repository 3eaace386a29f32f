"""Models from disk or hub, for training and for evaluation: adapters or whole models, 4-bit bases (QLoRA), dropout off.

graph/checkpoints/ reads the files. A relative path of an adapter's base model is relative to the working directory, as it was when the
adapter was trained."""

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
from graph.models.checkpoint import ADAPTER_CONFIG, adapter_base, check_base, is_adapter, tokenizer_place
from graph.models.load import check_vocabulary, load_adapter, load_whole, read_tokenizer
from graph.shared.hub import only_in_cache, quiet_loading
from train.model.trial import check_model


def four_bits() -> BitsAndBytesConfig:
    """How the base is loaded; UserError when bitsandbytes is not installed."""
    if importlib.util.find_spec("bitsandbytes") is None:
        found = "quantise = nf4 without bitsandbytes"
        raise UserError(found, "the package bitsandbytes", "pip install 'modegraph[qlora]', or set quantise to none")
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def train_quantised(model: Any) -> Any:
    """A model loaded in 4 bits, fit to train an adapter on: norms in float32, inputs with gradients, and no repacked weights.

    On processors with AVX512-BF16 bitsandbytes repacks a layer's weights at its first pass without gradients, after which no
    gradient passes through it any more, without a word; the layers are told that the processor cannot.
    """
    from bitsandbytes.nn.modules import Linear4bit
    from peft import prepare_model_for_kbit_training

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


JITTER = ("jitter_noise", "input_jitter_noise")
"""Rates of noise at a router's input. PhiMoE's `router_jitter_noise` is none: it decides on experts outside of training too."""


def without_dropout(model: Any) -> None:
    """Set every rate of dropout, layer dropout and router jitter to 0, in place: those of modules, and of configurations read at each pass."""
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        _still(module)


def _still(holder: Any) -> None:
    for name, value in list(vars(holder).items()):
        if isinstance(value, float) and ("drop" in name or name in JITTER):
            setattr(holder, name, 0.0)
        elif isinstance(value, PretrainedConfig):
            _still(value)


Precision = Literal["float32", "bfloat16"]
Quantisation = Literal["none", "nf4"]
Head = Literal["tokens", "score"]
NEW_HEADS = ("score", "classifier")
"""What transformers calls the output of a reward model, which a language model does not have yet."""


def load_policy(source: str, precision: Precision = "float32") -> tuple[Any, PreTrainedTokenizerBase]:
    """(model, tokenizer) ready to generate and to score: evaluation mode, dropout off, on the GPU where there is one.

    `source` is a model's folder, an adapter's folder or a hub name. UserError when it, or an adapter's base, is missing, or when it
    is a model whose log-probabilities cannot be had (train/model/trial.py).
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
    """A whole model, or an adapter on its base (a PeftModel whose adapter learns only if `trainable`).

    With `head` score its output is one number a text in place of the next token's logits: a reward model.
    """
    quiet_transformers()
    cached = check_source(source)
    if not is_adapter(source):
        return _load_base(source, precision, quantisation, head, cached)
    base = adapter_base(source)
    if not _is_present(base):
        found = f"{Path(source) / ADAPTER_CONFIG}: base model {base!r} does not exist in {Path.cwd()}"
        raise UserError(
            found, "the base model that the adapter was trained on", "start from the folder it was trained in"
        )
    cached = check_source(base)
    check_base(source, base)
    model = load_adapter(_load_base(base, precision, quantisation, head, cached), resolve(source), base, trainable)
    # PEFT looks there when it saves, and would ask the hub for a name of ours.
    for config in model.peft_config.values():
        config.base_model_name_or_path = resolve(base)
    return model


def load_tokenizer(source: str) -> PreTrainedTokenizerBase:
    """The tokenizer beside a model, with a chat template, an end token and a pad token; UserError without."""
    cached = check_source(source)
    tokenizer: PreTrainedTokenizerBase = read_tokenizer(tokenizer_place(source), source, local_files_only=cached)
    if tokenizer.chat_template is None:
        remedy = "choose its instruct variant, or put a chat_template.jinja beside its tokenizer"
        raise UserError(f"{source}: its tokenizer has no chat template", "a chat (instruct) model", remedy)
    if tokenizer.eos_token is None:
        remedy = "set eos_token in its tokenizer_config.json, to the token that the chat template ends a turn with"
        raise UserError(f"{source}: its tokenizer has no end token", "a chat (instruct) model", remedy)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    return tokenizer


def check_source(source: str) -> bool:
    """Whether the hub's cache alone has the model `source`, since the hub cannot be asked.

    UserError when it looks like a path and nothing is there, or is a folder without a model.
    """
    if not _is_present(source):
        raise UserError(f"model {source!r}: no such folder", "a model's folder, a run or a hub name", "check the path")
    folder = Path(resolve(source))
    if not folder.exists():
        return only_in_cache(resolve(source), f"model {source!r}")
    if not (folder / "config.json").exists() and not (folder / ADAPTER_CONFIG).exists():
        raise UserError(
            f"model {source!r}: neither config.json nor {ADAPTER_CONFIG}", "a model's folder or a run", "check the path"
        )
    return False


def device() -> str:
    """Where models run: "cuda" if there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def quiet_transformers() -> None:
    """Keep transformers' loading bars and hints off the terminal; errors still show."""
    transformers_logging.set_verbosity_error()
    quiet_loading()


def _load_base(source: str, precision: Precision, quantisation: Quantisation, head: Head, cached: bool) -> Any:
    """The whole model; `cached` keeps from asking the hub, which does not answer."""
    options: dict[str, Any] = {"dtype": getattr(torch, precision), "local_files_only": cached}
    if quantisation != "none":
        return train_quantised(_load(source, options | {"quantization_config": four_bits()}, head))
    return _load(source, options, head)


def _load(source: str, options: dict[str, Any], head: Head) -> Any:
    called = f"model {source!r}"
    if head == "tokens":
        return load_whole(AutoModelForCausalLM, resolve(source), called, **options)
    kind = AutoModelForSequenceClassification
    return load_whole(kind, resolve(source), called, new_modules=NEW_HEADS, num_labels=1, **options)


def _is_present(source: str) -> bool:
    """A hub name is `name` or `owner/name`; everything else must exist here."""
    return Path(source).exists() or (source.count("/") <= 1 and not source.startswith((".", "/", "~")))
