"""Loads full models, adapters and tokenizers with transformers and PEFT. Missing weights, which these libraries would initialise at random, raise an error.

Only safetensors are read, no code of a model is executed, and a model must have embeddings for all tokens that inputs can contain."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from graph.errors import UserError
from graph.models.catalogue import resolve
from graph.models.checkpoint import (
    ADAPTER_CONFIG,
    adapter_base,
    check_base,
    computes_in_bfloat16,
    is_adapter,
    tokenizer_source,
    trained_precision,
    wrong_base,
)
from graph.shared.console import say
from graph.shared.hub import only_in_cache, quiet_loading
from graph.text.prompting import special_token_pattern


def check_vocabulary(model: Any, tokenizer: Any, label: str) -> None:
    """UserError if a token that texts or the chat template can contain, or the end or padding token, has no row in the embeddings or the head.

    Rows without a token are harmless. Any other special token without a row is accepted (Gemma 3 has one for images), because no text is tokenised into it.
    """
    rows = vocabulary_rows(model)
    rowless = {token for token, number in tokenizer.get_vocab().items() if number >= rows}
    pattern = special_token_pattern(tokenizer)
    reachable = {token for token in rowless if pattern is None or not pattern.fullmatch(token)}
    reachable |= rowless & {tokenizer.eos_token, tokenizer.pad_token}
    if tokenizer.chat_template:
        reachable |= {token for token in rowless if token in str(tokenizer.chat_template)}
    if reachable:
        raise UserError(
            f"{label}: its tokenizer has tokens beyond the model's {rows:,} rows: {len(reachable):,}, such as {min(reachable)!r}",
            "a row of the embeddings and of the head for every token",
            "use the tokenizer that the model was saved with, or call resize_token_embeddings and train the new rows",
        )


def vocabulary_rows(model: Any) -> int:
    """The number of rows of the embeddings, or of the head if it has fewer."""
    heads = [model.get_input_embeddings(), model.get_output_embeddings()]
    return min(len(head.weight) for head in heads if head is not None)


UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError)
"""The libraries' exceptions for files that are missing, truncated, or in a format other than their names indicate."""
SHOWN_CHARS = 300
WEIGHT_OPTIONS: dict[str, Any] = {"use_safetensors": True, "ignore_mismatched_sizes": True}
"""Options of `from_pretrained`: weights of the wrong shape are reported here, not by a library."""


def load_full_model(kind: Any, source: str, label: str, new_modules: Sequence[str] = (), **options: Any) -> Any:
    """The model in `source`, a folder or a hub name, loaded with the class `kind`; errors name it `label`.

    UserError if it cannot be read, or if the weights do not match its configuration; only `new_modules`, those of a new head, may be
    initialised at random.
    """
    import torch

    # On a GPU, cuDNN's attention builds a plan for each new shape, and here every batch has a different one (on an H100: 3 s per step instead of 0.5 s).
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Without this, transformers searches the hub for an adapter even with local_files_only, with retries if it does not answer.
    options["adapter_kwargs"] = {"local_files_only": options.get("local_files_only", False)}
    try:
        model, info = kind.from_pretrained(source, output_loading_info=True, **WEIGHT_OPTIONS, **options)
    except UNREADABLE as problem:
        expected = "a causal language model as safetensors, in a folder or on the hub"
        remedy = "check the name, and that every file of the model is there and complete"
        raise UserError(f"{label} cannot be loaded ({one_line(problem)})", expected, remedy) from None
    missing = sorted(name for name in info["missing_keys"] if name.partition(".")[0] not in new_modules)
    if missing:
        raise _wrong_weights(label, f"missing weights: {len(missing)}, starting with {missing[0]}")
    for name, saved, expected in sorted(info["mismatched_keys"]):
        raise _wrong_weights(label, f"{name} has shape {list(saved)}, but config.json says {list(expected)}")
    return model


def check_weights(model: Any, label: str) -> None:
    """UserError if transformers initialised weights of a model of sentence-transformers at random, because they are missing or have the wrong shape; only
    those of an encoder's pooler may be random, because its output is not used. Adapters are not checked.
    """
    from transformers import PreTrainedModel

    whole = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if whole is None or hasattr(whole, "peft_config"):
        return
    named = whole.named_parameters()
    random = sorted(name for name, weight in named if not getattr(weight, "_is_hf_initialized", False))
    if random := [name for name in random if not name.startswith("pooler.")]:
        found = f"missing weights, or of the wrong shape: {len(random)}, starting with {random[0]}"
        raise _wrong_weights(label, found)


def load_adapter(whole: Any, folder: str, base: str, trainable: bool = False) -> Any:
    """The adapter in `folder` on its base model `whole`, named `base`; UserError if it cannot be read, or belongs to another model."""
    from peft import PeftModel, load_peft_weights, set_peft_model_state_dict

    try:
        with warnings.catch_warnings():
            # PEFT only warns of names that do not match; setting the weights again reports them.
            warnings.simplefilter("ignore")
            model = PeftModel.from_pretrained(whole, folder, is_trainable=trainable)
        report = set_peft_model_state_dict(model, load_peft_weights(folder))
    except RuntimeError as problem:
        raise wrong_base(folder, base, one_line(problem)) from None
    except UNREADABLE as problem:
        found = f"adapter {folder!r} cannot be loaded ({one_line(problem)})"
        raise UserError(found, "an adapter in safetensors", "save the adapter again") from None
    missing = [name for name in report.missing_keys if ".default" in name]
    if missing or report.unexpected_keys:
        counts = (("missing weights", missing), ("weights without a counterpart", report.unexpected_keys))
        found = "; ".join(f"{what}: {len(names)}, starting with {names[0]}" for what, names in counts if names)
        raise wrong_base(folder, base, found)
    return model


def read_tokenizer(source: str, label: str, **options: Any) -> Any:
    """The tokenizer in `source`, a folder or a hub name; UserError if there is none, or it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(source, **options)
    except Exception as problem:  # tokenizers raises no narrower exception for a damaged file
        if not isinstance(problem, UNREADABLE) and type(problem) is not Exception:
            raise
        remedy = "copy the tokenizer's files into the model's folder"
        raise UserError(f"{label}: no tokenizer ({one_line(problem)})", "a model with its tokenizer", remedy) from None


def one_line(problem: Exception) -> str:
    """A library's message on one line, cut to SHOWN_CHARS; its type if it is empty."""
    return " ".join(str(problem).split())[:SHOWN_CHARS] or type(problem).__name__


def _wrong_weights(label: str, reason: str) -> UserError:
    return UserError(f"{label}: {reason}", "the weights that its config.json describes", "copy or save the model again")


def load_for_inference(target: str) -> tuple[Any, Any, str]:
    """Model, tokenizer and location of a full model or an adapter, on the GPU if there is one. UserError, before torch is imported, for a missing folder.

    `target` is a folder, a hub name (safetensors only) or a name of the catalogue; errors name it hf:`target`.
    """
    path = Path(resolve(target)).expanduser()
    if not path.is_dir() and _looks_like_path(target):
        expected = "a model's or adapter's folder, or a hub name"
        raise UserError(f"hf:{target}: no such folder", expected, "check the path")
    where = str(path) if path.is_dir() else target
    base = _base_of(where) if is_adapter(where) else None
    base_model = resolve(base) if base is not None else where
    label = f"hf:{target}" if base is None else f"base model {base}"
    cached = not Path(base_model).is_dir() and only_in_cache(base_model, label)
    return *_load_with_tokenizer(f"hf:{target}", where, base_model, cached), where


def _load_with_tokenizer(spec: str, where: str, base_model: str, cached: bool) -> tuple[Any, Any]:
    """The model `base_model`, with the adapter in `where` if that is another folder, and its tokenizer; `cached` avoids requests to the hub.

    On a GPU, the checkpoint sets the precision. On a CPU with instructions for bfloat16, models trained with modegraph run in the
    precision of their training and all others in bfloat16; on any other CPU, all run in float32.
    """
    import torch
    from transformers import AutoModelForCausalLM

    quiet_loading()
    precision = (trained_precision(where) or "bfloat16") if computes_in_bfloat16() else "float32"
    dtype: Any = "auto" if torch.cuda.is_available() else getattr(torch, precision)
    model = load_full_model(AutoModelForCausalLM, base_model, spec, dtype=dtype, local_files_only=cached)
    if where != base_model:
        # PEFT keeps adapters in float32, which halves the speed of a base in bfloat16; training, too, used them in bfloat16.
        model = load_adapter(model, where, base_model).to(model.dtype)
    tokenizer = read_tokenizer(tokenizer_source(where), spec, local_files_only=cached)
    check_vocabulary(model, tokenizer, spec)
    if tokenizer.chat_template is None:
        say(f"{spec} has no chat template (base models have none): it gets prompts as plain text")
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


def _looks_like_path(target: str) -> bool:
    """Whether a missing `target` was meant as a folder: a hub name is NAME or OWNER/NAME, and OWNER is not a local folder."""
    if target.startswith((".", "/", "~")) or "\\" in target or target.count("/") > 1:
        return True
    return "/" in target and Path(target).parent.is_dir()


def _base_of(folder: str) -> str:
    """The base model of an adapter; UserError if it is missing or has changed."""
    base = adapter_base(folder)
    if not Path(base).is_dir() and _looks_like_path(base):
        found = f"{Path(folder) / ADAPTER_CONFIG}: base model {base!r} does not exist"
        raise UserError(found, "the base model's folder", "restore it or edit the file")
    check_base(folder, base)
    return base
