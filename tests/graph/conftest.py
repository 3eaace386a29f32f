"""MiniLM, loaded once in each test process, and a small index made with it."""

import pytest

from graph.build.build import build_index
from graph.index.index import Index, open_index
from graph.models.encoder import open_encoder
from graph.store.index_settings import IndexSettings
from graph.types import Encoder
from tests.corpora import ISLES


@pytest.fixture(scope="session")
def minilm() -> Encoder:
    return open_encoder("minilm")


@pytest.fixture(scope="session")
def isles(tmp_path_factory: pytest.TempPathFactory, minilm: Encoder) -> Index:
    folder = tmp_path_factory.mktemp("isles") / "index"
    build_index(folder, ISLES, IndexSettings(min_similarity=0.2), lambda spec: minilm)
    return open_index(folder, lambda spec: minilm)
