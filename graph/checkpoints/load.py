"""Whole models, adapters and tokenizers by transformers and PEFT, which draw weights at random where a file has none; here that is an error.

Only safetensors are read, and no code that ships with a model is run.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from safetensors import SafetensorError
from transformers import AutoTokenizer

from graph.checkpoints.adapter import another_base
from graph.shared.errors import UserError

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
