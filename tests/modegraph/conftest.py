"""An index of ISLES with the stand-in encoder, and a tiny model made through the public API."""

import shutil
from pathlib import Path

import pytest

import graph.models.encoder
import modegraph as mg
from graph.shared.jsonl import write_jsonl
from tests.corpora import ISLES
from tests.fakes import HashEncoder


@pytest.fixture(autouse=True)
def use_hash_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every encoder with the stand-in encoder."""
    monkeypatch.setattr(graph.models.encoder, "open_encoder", lambda spec: HashEncoder())


@pytest.fixture
def isles(hashed_isles: Path, tmp_path: Path) -> mg.Index:
    """An index that a test may change."""
    return mg.open(shutil.copytree(hashed_isles, tmp_path / "isles"))


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> mg.Run:
    """The run that trained a tiny Llama for two steps."""
    folder = tmp_path_factory.mktemp("tiny")
    write_jsonl(folder / "texts.jsonl", ({"id": each.source, "text": each.text} for each in ISLES))
    size = {"vocabulary": 600, "hidden_size": 32, "layers": 2, "heads": 2, "block_tokens": 32}
    return mg.train.tiny(texts=folder / "texts.jsonl", out=folder / "tiny", steps=2, **size)
