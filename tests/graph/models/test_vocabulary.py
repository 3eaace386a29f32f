"""Tokens without a row in the embedding matrix, and rows without a token."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from graph.errors import UserError
from graph.models.load import vocabulary_rows
from graph.types import CompletionRequest, Message
from serve.engines.hf_open import open_hf
from tests.tiny_models import CONTROL_TOKENS
from train.model.load import load_policy

END = "<|fin|>"


def end_turns_with_a_new_token(tokenizer: Any) -> None:
    tokenizer.add_special_tokens({"eos_token": END})


def add_image_token_to_the_template(tokenizer: Any) -> None:
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    tokenizer.chat_template += "{{ '<image>' }}"


@pytest.mark.parametrize(
    ("change", "token"),
    [
        (lambda tokenizer: tokenizer.add_tokens(["Corrow"]), "Corrow"),
        (end_turns_with_a_new_token, END),
        (lambda tokenizer: tokenizer.add_special_tokens({"pad_token": "[PAD]"}), "[PAD]"),
        (add_image_token_to_the_template, "<image>"),
    ],
)
@pytest.mark.parametrize("load", [load_policy, open_hf])
def test_a_token_without_an_embedding_row_is_named(
    load: Callable[[str], object], change: Callable[[Any], object], token: str, intact_model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(intact_model, tmp_path / "copy")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    change(tokenizer)
    tokenizer.save_pretrained(folder)
    with pytest.raises(UserError) as raised:
        load(str(folder))
    assert f"tokens beyond the model's {256 + len(CONTROL_TOKENS)} rows: 1, such as {token!r}" in str(raised.value)


def test_a_special_token_that_encoding_never_produces_needs_no_row(intact_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(intact_model, tmp_path / "copy")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    load_policy(str(folder))
    engine = open_hf(str(folder))
    ids = engine.prompt_ids([Message("user", "What is <image>?")])
    assert tokenizer.convert_tokens_to_ids("<image>") not in ids
    assert engine.complete([CompletionRequest((Message("user", "<image>"),), 2)])[0].completion_tokens <= 2


def test_a_model_with_more_rows_than_tokens_is_loaded(intact_model: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(intact_model)
    model.resize_token_embeddings(320, mean_resizing=False)
    folder = shutil.copytree(intact_model, tmp_path / "padded")
    model.save_pretrained(folder)
    assert vocabulary_rows(load_policy(str(folder))[0]) == 320 and open_hf(str(folder)).name.startswith("padded#")
