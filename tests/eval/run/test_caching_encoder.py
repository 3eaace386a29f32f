"""Indexes of one corpus share their vectors and are the same as indexes built without sharing."""

from pathlib import Path

import numpy as np

from eval.run.run import CachingEncoder
from graph.build.build import build_index
from graph.index.index import open_index
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from tests.corpora import ISLES
from tests.eval.run.conftest import run
from tests.fakes import HashEncoder
from tests.graph.same import assert_same_index

INDEXES = {"one layer": {"layers": 1, "min_similarity": 0.2}, "two layers": {"layers": 2, "min_similarity": 0.1}}


def test_a_text_in_several_indexes_is_encoded_once(home: Path) -> None:
    done, _, encoder = run(home, indexes=INDEXES)
    assert not done.failed and done.json["cells"]["filled"] == 4
    titles = [text for text in encoder.encoded if text.startswith("Lantern")]
    assert titles and len(titles) == len(set(titles))


def test_cached_vectors_equal_those_of_the_encoder_in_the_order_of_the_texts() -> None:
    caching, plain = CachingEncoder(HashEncoder()), HashEncoder()
    for texts in (["b", "a", "b"], ["c", "a"], [], ["a"]):
        np.testing.assert_array_equal(caching.encode(texts), plain.encode(texts))
    assert caching.fingerprint == plain.fingerprint and caching.count_tokens("two words") == 2


def test_an_index_built_from_cached_vectors_equals_one_built_without_a_cache(tmp_path: Path) -> None:
    def build(name: str, encoder: HashEncoder | CachingEncoder) -> IndexData:
        build_index(tmp_path / name, ISLES, IndexSettings(), lambda spec: encoder)
        return open_index(tmp_path / name, lambda spec: encoder).data

    caching = CachingEncoder(HashEncoder())
    build("first", caching)
    assert_same_index(build("second", caching), build("plain", HashEncoder()))
