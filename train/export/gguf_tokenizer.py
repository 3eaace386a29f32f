"""A byte-level BPE tokenizer as the fields of a GGUF file, for llama.cpp and what is built on it (Ollama, LM Studio).

llama.cpp knows how a text is cut before its bytes are merged by a name alone, so only the cuts named here are written: a file with
another name would be read without complaint, into other tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gguf import GGUFWriter, TokenType
from transformers import PreTrainedTokenizerBase

from graph.shared.errors import UserError

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CUTS = {
    ("bytes and words",): "gpt-2",
    ("digits", "bytes and words"): "smollm",
    (rf"{_WORDS}|\p{{N}}|{_REST}", "bytes"): "qwen2",
    (rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}", "bytes"): "llama-bpe",
}
"""The steps of a pre-tokenizer, as `_step` tells them, to llama.cpp's name for them."""


def add_tokenizer(writer: GGUFWriter, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> None:
    """Write tokens, merges, special tokens and chat template; `vocabulary` is the number of the model's embeddings.

    UserError for a tokenizer that is no byte-level BPE, or cuts texts in a way that llama.cpp has no name for here.
    """
    whole = json.loads(tokenizer.backend_tokenizer.to_str())
    name = cut_name(whole, str(tokenizer.name_or_path))
    tokens, types = vocabulary_of(tokenizer, vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in whole["model"]["merges"]])
    for add, token in (
        (writer.add_bos_token_id, tokenizer.bos_token_id),
        (writer.add_eos_token_id, tokenizer.eos_token_id),
        (writer.add_pad_token_id, tokenizer.pad_token_id),
        (writer.add_unk_token_id, tokenizer.unk_token_id),
    ):
        if token is not None:
            add(token)
    writer.add_add_bos_token(tokenizer.bos_token_id in tokenizer("a")["input_ids"])
    writer.add_chat_template(tokenizer.chat_template)


def vocabulary_of(tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> tuple[list[str], list[TokenType]]:
    """Every token by its id with its type; embeddings without a token get a name that no text holds."""
    by_id = {token: text for text, token in tokenizer.get_vocab().items()}
    if max(by_id) >= vocabulary:
        found = f"the tokenizer knows token {max(by_id)}, the model has {vocabulary} embeddings"
        raise UserError(
            found, "an embedding for each token", "export the run with the tokenizer that it was trained with"
        )
    added = tokenizer.added_tokens_decoder
    types = [
        TokenType.UNUSED
        if token not in by_id
        else TokenType.NORMAL
        if token not in added
        else TokenType.CONTROL
        if added[token].special
        else TokenType.USER_DEFINED
        for token in range(vocabulary)
    ]
    return [by_id.get(token, f"[PAD{token}]") for token in range(vocabulary)], types


def cut_name(whole: Mapping[str, Any], source: str) -> str:
    """llama.cpp's name for how a tokenizer (its tokenizer.json) cuts texts; UserError when there is none."""
    kind, normalizer = whole["model"]["type"], (whole["normalizer"] or {"type": "none"})["type"]
    if kind != "BPE" or whole["model"].get("byte_fallback") or normalizer not in ("none", "NFC"):
        raise _refused(f"{source}: a tokenizer of type {kind} with normalizer {normalizer}")
    outer = whole["pre_tokenizer"] or {"type": "none"}
    steps = tuple(_step(each) for each in outer.get("pretokenizers", [outer]))
    if steps not in CUTS:
        raise _refused(f"{source}: a tokenizer that cuts texts by {' then '.join(steps)}")
    return CUTS[steps]


def _step(step: Mapping[str, Any]) -> str:
    """One step of a pre-tokenizer in words; a split by its regular expression."""
    match step:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}:
            return "bytes and words" if use_regex else "bytes"
        case {"type": "Digits", "individual_digits": True}:
            return "digits"
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}:
            return str(pattern)
    return str(step["type"])


def _refused(found: str) -> UserError:
    expected = f"byte-level BPE, cut as one of {', '.join(CUTS.values())}"
    return UserError(found, expected, "export it with --merge, and convert the folder with llama.cpp's own converter")
