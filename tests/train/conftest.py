"""Fixtures to train with: a tokenizer and a Llama of about 46,000 weights, preference data and scored responses."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import torch

from data_synth.rows import preference_to_json, response_to_json
from graph.shared.jsonl import write_jsonl
from tests.train.world import TEXTS, preference, response_row
from train.run.settings import TinySettings
from train.tiny import new_llama, train_tokenizer


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small run faster on one thread, and with the same results on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an untrained Llama with its tokenizer; weights initialised with seed 0."""
    folder = tmp_path_factory.mktemp("models") / "base"
    settings = TinySettings(texts="", output="", vocabulary=600, hidden_size=32, layers=2, heads=2, context_tokens=256)
    tokenizer = train_tokenizer(TEXTS, settings.vocabulary, settings.context_tokens)
    new_llama(settings, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A preference-data folder: 12 training rows and 4 dev rows."""
    folder = tmp_path_factory.mktemp("data")
    write_jsonl(folder / "train.jsonl", (preference_to_json(preference(number)) for number in range(12)))
    write_jsonl(folder / "dev.jsonl", (preference_to_json(preference(number)) for number in range(12, 16)))
    return folder


@pytest.fixture(scope="session")
def scored_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of scored responses: 3 training prompts with 6 responses each, one dev prompt with 5."""
    folder = tmp_path_factory.mktemp("scored")
    write_jsonl(folder / "train.jsonl", (response_to_json(response_row(number)) for number in range(3)))
    write_jsonl(folder / "dev.jsonl", [response_to_json(response_row(3, responses=5))])
    return folder
