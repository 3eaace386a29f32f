"""Whole models, adapters and tokenizers by transformers and PEFT, which draw weights at random where a file has none; here that is an error.

Only safetensors are read, no code that ships with a model is run, and a model has a row for every token that it can be given."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from graph.errors import UserError
from graph.models.checkpoint import another_base
from graph.text.prompting import special_token_pattern


def check_vocabulary(model: Any, tokenizer: Any, called: str) -> None:
    """UserError for a tokenizer whose texts, end or padding hold tokens that the model has no row for; spare rows do no harm.

    A special token without a row is let through (Gemma 3 has one for images): none that a text spells out is read as one.
    """
    rows = vocabulary_rows(model)
    beyond = {token for token, number in tokenizer.get_vocab().items() if number >= rows}
    pattern = special_token_pattern(tokenizer)
    spoken = {token for token in beyond if pattern is None or not pattern.fullmatch(token)}
    spoken |= beyond & {tokenizer.eos_token, tokenizer.pad_token}
    if tokenizer.chat_template:
        spoken |= {token for token in beyond if token in str(tokenizer.chat_template)}
    if spoken:
        raise UserError(
            f"{called}: its tokenizer has {len(spoken):,} tokens beyond the model's {rows:,} rows, {min(spoken)!r} among them",
            "a row of the embeddings and of the head for every token",
            "take the tokenizer that the model was saved with, or call resize_token_embeddings and train the new rows",
        )


def vocabulary_rows(model: Any) -> int:
    """Rows of the embeddings, or of the head where it has fewer."""
    heads = [model.get_input_embeddings(), model.get_output_embeddings()]
    return min(len(head.weight) for head in heads if head is not None)


TOKENIZER_FILE = "tokenizer.json"


def read_light_tokenizer(folder: Path, called: str) -> Any:
    """The fast tokenizer in a folder, its chat template included; UserError when there is none, or it cannot be read."""
    from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

    if not (folder / TOKENIZER_FILE).is_file():
        raise UserError(
            f"{called}: no {TOKENIZER_FILE} in {folder}", "a model with its tokenizer", "copy it beside the model"
        )
    try:
        return PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
    except Exception as problem:  # noqa: BLE001  tokenizers raises no narrower kind for a damaged file
        reason = " ".join(str(problem).split())[:300] or type(problem).__name__
        found = f"{called}: its tokenizer cannot be read ({reason})"
        raise UserError(found, "a whole tokenizer", "copy the files of the tokenizer beside the model again") from None


UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError)
"""What the libraries raise for files that are missing, cut, or not what their names say."""
SHOWN_CHARS = 300


def load_whole(kind: Any, place: str, called: str, new_modules: Sequence[str] = (), **options: Any) -> Any:
    """The model at `place`, a folder or a hub name, by the class `kind`; errors name it as `called`.

    UserError when it cannot be read, or when the weights are not those of its configuration; only `new_modules`, which a new head is
    made of, may be drawn at random.
    """
    # transformers looks for an adapter on the hub, again and again where it does not answer, unless it is told here too.
    options["adapter_kwargs"] = {"local_files_only": options.get("local_files_only", False)}
    try:
        model, told = kind.from_pretrained(
            place, use_safetensors=True, ignore_mismatched_sizes=True, output_loading_info=True, **options
        )
    except UNREADABLE as problem:
        raise UserError(
            f"{called} cannot be loaded ({one_line(problem)})",
            "a causal language model as safetensors, in a folder or on the hub",
            "check the name, and that every file of the model is there and whole",
        ) from None
    absent = sorted(name for name in told["missing_keys"] if name.partition(".")[0] not in new_modules)
    if absent:
        raise _not_its_weights(called, f"{len(absent)} weights are missing, {absent[0]} first")
    for name, saved, wanted in sorted(told["mismatched_keys"]):
        raise _not_its_weights(called, f"{name} is {list(saved)}, config.json says {list(wanted)}")
    return model


def load_adapter(whole: Any, folder: str, base: str, trainable: bool = False) -> Any:
    """The adapter in `folder` on its base `whole`, which is called `base`; UserError when it cannot be read, or fits another model."""
    from peft import PeftModel, load_peft_weights, set_peft_model_state_dict

    try:
        with warnings.catch_warnings():
            # PEFT warns of names that do not match and goes on; asked again, it tells them.
            warnings.simplefilter("ignore")
            model = PeftModel.from_pretrained(whole, folder, is_trainable=trainable)
        told = set_peft_model_state_dict(model, load_peft_weights(folder))
    except RuntimeError as problem:
        raise another_base(folder, base, one_line(problem)) from None
    except UNREADABLE as problem:
        raise UserError(
            f"adapter {folder!r} cannot be loaded ({one_line(problem)})", "an adapter in safetensors", "save it again"
        ) from None
    absent = [name for name in told.missing_keys if ".default" in name]
    if absent or told.unexpected_keys:
        name = [*told.unexpected_keys, *absent][0]
        raise another_base(folder, base, f"{len(absent)} of its weights are missing; {name} has no counterpart")
    return model


def read_tokenizer(place: str, called: str, **options: Any) -> Any:
    """The tokenizer at `place`; UserError when there is none, or it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(place, **options)
    except Exception as problem:  # tokenizers raises no narrower kind for a damaged file
        if not isinstance(problem, UNREADABLE) and type(problem) is not Exception:
            raise
        found = f"{called}: no tokenizer ({one_line(problem)})"
        raise UserError(found, "a model with its tokenizer", "copy the files of the tokenizer beside it") from None


def one_line(problem: Exception) -> str:
    """What a library says, without its line breaks."""
    return " ".join(str(problem).split())[:SHOWN_CHARS] or type(problem).__name__


def _not_its_weights(called: str, why: str) -> UserError:
    return UserError(f"{called}: {why}", "the weights that its config.json describes", "copy or save the model again")
