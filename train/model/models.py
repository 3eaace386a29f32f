"""Models from disk or hub: the one place that knows adapters from whole models, for training and for evaluation.

Only safetensors are read, and no code that ships with a model is run. A relative path of an adapter's base model is
relative to the working directory, as it was when the adapter was trained.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)
from transformers import logging as transformers_logging

from graph.encode.weights import weights_fingerprint
from graph.pretrained.cache import resolve
from graph.shared.errors import UserError
from graph.shared.hub import only_in_cache
from graph.shared.quiet import quiet_loading
from train.model.quantised import four_bits, train_quantised
from train.model.trial import check_model
from train.shared.types import RECORD, read_run

ADAPTER = "adapter_config.json"
Precision = Literal["float32", "bfloat16"]
Quantisation = Literal["none", "nf4"]
Head = Literal["tokens", "score"]


def load_policy(source: str, precision: Precision = "float32") -> tuple[Any, PreTrainedTokenizerBase]:
    """(model, tokenizer) ready to generate and to score: evaluation mode, dropout off, on the GPU where there is one.

    `source` is a model's folder, an adapter's folder or a hub name. UserError when it, or an adapter's base, is missing, or when it
    is a model whose log-probabilities cannot be had (train/model/trial.py).
    """
    model = load_model(source, precision).to(device()).eval().requires_grad_(False)
    check_model(model)
    return model, load_tokenizer(source)


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
    check_source(source)
    if not is_adapter(source):
        return _load_base(source, precision, quantisation, head)
    from peft import PeftModel

    base = adapter_base(source)
    if not _is_present(base):
        found = f"{Path(source) / ADAPTER}: base model {base!r} does not exist in {Path.cwd()}"
        raise UserError(
            found, "the base model that the adapter was trained on", "start from the folder it was trained in"
        )
    check_source(base)
    check_base(source, base)
    try:
        whole = _load_base(base, precision, quantisation, head)
        model = PeftModel.from_pretrained(whole, source, is_trainable=trainable)
    except RuntimeError as problem:
        raise _another_base(source, base, _first_line(problem)) from None
    # PEFT looks there when it saves, and would ask the hub for a name of ours.
    for config in model.peft_config.values():
        config.base_model_name_or_path = resolve(base)
    return model


def load_tokenizer(source: str) -> PreTrainedTokenizerBase:
    """The tokenizer beside a model, with a chat template, an end token and a pad token; UserError without."""
    check_source(source)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(resolve(source))
    except (OSError, ValueError) as problem:
        raise UserError(f"{source}: no tokenizer ({_first_line(problem)})", "a model with its tokenizer", "") from None
    if tokenizer.eos_token is None or tokenizer.chat_template is None:
        what = "end token" if tokenizer.eos_token is None else "chat template"
        raise UserError(f"{source}: its tokenizer has no {what}", "a chat (instruct) model", "choose another model")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    return tokenizer


def check_source(source: str) -> None:
    """UserError when `source` looks like a path and nothing is there, or is a folder without a model."""
    if not _is_present(source):
        raise UserError(f"model {source!r}: no such folder", "a model's folder, a run or a hub name", "check the path")
    folder = Path(resolve(source))
    if not folder.exists():
        only_in_cache(source, f"model {source!r}")
    if folder.exists() and not (folder / "config.json").exists() and not (folder / ADAPTER).exists():
        raise UserError(
            f"model {source!r}: neither config.json nor {ADAPTER}", "a model's folder or a run", "check the path"
        )


def base_weights(source: str) -> str:
    """The fingerprint of a model's weights, of the base's for an adapter; a hub name stands for itself."""
    base = Path(resolve(adapter_base(source) if is_adapter(source) else source))
    return weights_fingerprint(base) if base.is_dir() else str(base)


def check_base(adapter: str, base: str) -> None:
    """UserError when the run that made an adapter says that its base had other weights than the one that is there now."""
    if not (Path(adapter) / RECORD).exists():
        return
    trained_on = read_run(Path(adapter)).base_weights
    if trained_on and Path(resolve(base)).is_dir() and trained_on != base_weights(base):
        raise _another_base(adapter, base, f"trained on weights {trained_on}, found {base_weights(base)}")


def _another_base(adapter: str, base: str, why: str) -> UserError:
    return UserError(
        f"adapter {adapter!r} does not belong to base model {base!r} ({why})",
        "the very model that it was trained on",
        f"put that model back, or fix base_model_name_or_path in {Path(adapter) / ADAPTER}",
    )


def is_adapter(source: str) -> bool:
    """Whether `source` is the folder of an adapter."""
    return (Path(source) / ADAPTER).exists()


def adapter_base(folder: str) -> str:
    """The base model's name or path as an adapter's folder records it."""
    return str(json.loads((Path(folder) / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"])


def device() -> str:
    """Where models run: "cuda" if there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def quiet_transformers() -> None:
    """Keep transformers' loading bars and hints off the terminal; errors still show."""
    transformers_logging.set_verbosity_error()
    quiet_loading()


def _load_base(source: str, precision: Precision, quantisation: Quantisation, head: Head) -> Any:
    options: dict[str, Any] = {"dtype": getattr(torch, precision), "use_safetensors": True}
    if quantisation != "none":
        return train_quantised(_load(source, options | {"quantization_config": four_bits()}, head))
    return _load(source, options, head)


def _load(source: str, options: dict[str, Any], head: Head) -> Any:
    kind = AutoModelForSequenceClassification if head == "score" else AutoModelForCausalLM
    outputs = {"num_labels": 1} if head == "score" else {}
    try:
        return kind.from_pretrained(resolve(source), **outputs, **options)
    except (OSError, ValueError) as problem:
        found = f"model {source!r} cannot be loaded ({_first_line(problem)})"
        raise UserError(
            found, "a causal language model as safetensors, in a folder or on the hub", "check the name"
        ) from None


def _is_present(source: str) -> bool:
    """A hub name is `name` or `owner/name`; everything else must exist here."""
    return Path(source).exists() or (source.count("/") <= 1 and not source.startswith((".", "/", "~")))


def _first_line(problem: Exception) -> str:
    return str(problem).strip().split("\n")[0][:200]
