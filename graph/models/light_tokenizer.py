"""Tokenizers read without torch and, for models of the catalogue, without transformers, whose import takes a second."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from jinja2.sandbox import ImmutableSandboxedEnvironment

from graph.errors import UserError
from graph.models.catalogue import RECORD
from graph.models.load import one_line

TOKENIZER_FILE = "tokenizer.json"


class LightTokenizer:
    """The part of transformers' PreTrainedTokenizerFast that serving uses, with the same results, for the folder of a catalogue model.

    Its chat template may use only Jinja's built-in filters and blocks.
    """

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        self.name_or_path = str(folder)
        self.chat_template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(self.chat_template)
        self._special_tokens = {name: config[name] for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
        self.eos_token_id = self._tokenizer.token_to_id(config["eos_token"])

    def __call__(self, text: str | list[str], add_special_tokens: bool = True) -> dict[str, list[Any]]:
        """Token ids of a text, or of each text, under "input_ids"."""
        if isinstance(text, str):
            return {"input_ids": self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids}
        encodings = self._tokenizer.encode_batch(text, add_special_tokens=add_special_tokens)
        return {"input_ids": [encoding.ids for encoding in encodings]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))

    @property
    def added_tokens_decoder(self) -> dict[int, tokenizers.AddedToken]:
        return dict(self._tokenizer.get_added_tokens_decoder())

    def apply_chat_template(self, turns: list[dict[str, str]], **variables: Any) -> str:
        """A chat as text, rendered by the template with these variables (`add_generation_prompt`, …)."""
        return self._template.render(messages=turns, **self._special_tokens | variables)


def read_light_tokenizer(folder: Path, label: str) -> Any:
    """The fast tokenizer in a folder, with its chat template; UserError if there is none, or it cannot be read."""
    if not (folder / TOKENIZER_FILE).is_file():
        found = f"{label}: no {TOKENIZER_FILE} in {folder}"
        raise UserError(found, "a model with its tokenizer", "copy the tokenizer into that folder")
    try:
        if (folder / RECORD).is_file():
            return LightTokenizer(folder)
        from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
    except Exception as problem:  # noqa: BLE001  tokenizers raises a plain Exception for a damaged file
        found = f"{label}: its tokenizer cannot be read ({one_line(problem)})"
        remedy = "copy the tokenizer's files into the model's folder again"
        raise UserError(found, "a complete tokenizer", remedy) from None
