"""Loads full models, adapters and tokenizers with transformers and PEFT. Missing weights, which these libraries initialise at random, are an error here.

Only safetensors are read, no code of a model is executed, and a model must have a row for every token of its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from safetensors import SafetensorError

from graph.errors import UserError
from graph.models.checkpoint import wrong_base
from graph.text.prompting import special_token_pattern


def check_vocabulary(model: Any, tokenizer: Any, label: str) -> None:
    """UserError if a token that texts or the chat template can contain, or the end or padding token, has no row in the model; extra rows are harmless.

    Any other special token without a row is accepted (Gemma 3 has one for images), because no text is tokenised to one.
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
            f"{label}: its tokenizer has {len(reachable):,} tokens beyond the model's {rows:,} rows, {min(reachable)!r} among them",
            "a row of the embeddings and of the head for every token",
            "use the tokenizer that the model was saved with, or call resize_token_embeddings and train the new rows",
        )


def vocabulary_rows(model: Any) -> int:
    """The number of rows of the embeddings, or of the head if it has fewer."""
    heads = [model.get_input_embeddings(), model.get_output_embeddings()]
    return min(len(head.weight) for head in heads if head is not None)


UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError)
"""The libraries' exceptions for files that are missing, truncated, or in a format other than their names say."""
SHOWN_CHARS = 300


def load_whole(kind: Any, source: str, label: str, new_modules: Sequence[str] = (), **options: Any) -> Any:
    """The model in `source`, a folder or a hub name, loaded with the class `kind`; errors name it `label`.

    UserError if it cannot be read, or if the weights do not match its configuration; only `new_modules`, those of a new head, may be
    initialised at random.
    """
    import torch

    # On a GPU, cuDNN's attention builds a plan for each new shape, and here every batch has a different one (on an H100: 3 s a step instead of 0.5 s).
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Without this, transformers searches the hub for an adapter even with local_files_only, with retries if it does not answer.
    options["adapter_kwargs"] = {"local_files_only": options.get("local_files_only", False)}
    try:
        model, info = kind.from_pretrained(
            source, use_safetensors=True, ignore_mismatched_sizes=True, output_loading_info=True, **options
        )
    except UNREADABLE as problem:
        raise UserError(
            f"{label} cannot be loaded ({one_line(problem)})",
            "a causal language model as safetensors, in a folder or on the hub",
            "check the name, and that every file of the model is there and complete",
        ) from None
    missing = sorted(name for name in info["missing_keys"] if name.partition(".")[0] not in new_modules)
    if missing:
        raise _wrong_weights(label, f"missing weights: {len(missing)}, starting with {missing[0]}")
    for name, saved, expected in sorted(info["mismatched_keys"]):
        raise _wrong_weights(label, f"{name} has shape {list(saved)}, but config.json says {list(expected)}")
    return model


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
        raise UserError(
            f"adapter {folder!r} cannot be loaded ({one_line(problem)})", "an adapter in safetensors", "save it again"
        ) from None
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
    except Exception as problem:  # tokenizers raises no narrower kind for a damaged file
        if not isinstance(problem, UNREADABLE) and type(problem) is not Exception:
            raise
        found = f"{label}: no tokenizer ({one_line(problem)})"
        raise UserError(found, "a model with its tokenizer", "copy the files of the tokenizer beside it") from None


def one_line(problem: Exception) -> str:
    """A library's message on one line, cut to SHOWN_CHARS; its type if it is empty."""
    return " ".join(str(problem).split())[:SHOWN_CHARS] or type(problem).__name__


def _wrong_weights(label: str, reason: str) -> UserError:
    return UserError(f"{label}: {reason}", "the weights that its config.json describes", "copy or save the model again")
