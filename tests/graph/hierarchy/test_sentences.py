"""Sentences of summaries: their vectors are the same however many are read from a file at a time; each ends with punctuation when they are joined."""

from pathlib import Path

import numpy as np
import pytest

from graph.hierarchy import layers
from graph.hierarchy.layers import Sentences
from graph.hierarchy.summaries import join_sentences
from graph.shared.ids import content_id
from graph.store.arrays import save_vectors
from graph.store.vectors import Vectors


@pytest.mark.parametrize("in_file", [False, True])
def test_a_large_pool_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_file: bool) -> None:
    vectors_ND = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    stored = save_vectors(tmp_path, "v", Vectors.of(vectors_ND, [content_id(str(row)) for row in range(50)]), 8)
    sentences = Sentences(stored if in_file else vectors_ND, str, len)
    releases: list[int] = []
    monkeypatch.setattr(layers, "MAX_VECTORS_READ", 7)
    monkeypatch.setattr(Sentences, "release_memory", lambda self: releases.append(1))
    for pool in ([], [3], list(range(0, 14, 2)), list(range(49, 20, -1))):
        assert np.array_equal(sentences.read(pool), vectors_ND[np.array(pool, np.int64)])
    assert len(releases) == 5, "memory should be released only for the pool of 29, after each of its five parts"


def test_a_sentence_is_joined_with_a_full_stop_only_if_it_has_no_end_in_any_script() -> None:
    ended = [
        "高い！",
        "誰？",
        "はい｡",
        "هل هذه قرية؟",
        "یہ گاؤں ہے۔",
        "यह गाँव है।",
        "श्लोक॥",
        "(It rains.)",
        "“It burned.”",
    ]
    assert join_sentences(ended) == " ".join(ended)
    assert join_sentences(["It rains", 'Ada built the "Lantern"']) == 'It rains. Ada built the "Lantern".'
