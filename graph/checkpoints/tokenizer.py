"""A model's tokenizer from its tokenizer.json without torch, which transformers' AutoTokenizer imports: five seconds and .4 GB less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graph.shared.errors import UserError

FILE = "tokenizer.json"


def read_light_tokenizer(folder: Path, called: str) -> Any:
    """The fast tokenizer in a folder, its chat template included; UserError when there is none, or it cannot be read."""
    from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

    if not (folder / FILE).is_file():
        raise UserError(f"{called}: no {FILE} in {folder}", "a model with its tokenizer", "copy it beside the model")
    try:
        return PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
    except Exception as problem:  # noqa: BLE001  tokenizers raises no narrower kind for a damaged file
        reason = " ".join(str(problem).split())[:300] or type(problem).__name__
        found = f"{called}: its tokenizer cannot be read ({reason})"
        raise UserError(found, "a whole tokenizer", "copy the files of the tokenizer beside the model again") from None
