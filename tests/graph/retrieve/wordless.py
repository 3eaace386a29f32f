"""`hops` without the question's words: the variant whose scores are features of trained selectors."""

import numpy as np
import pytest

from graph.retrieve.parts import passage_scores


def leave_words_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(index: object, terms: object) -> np.ndarray:
        return np.zeros(len(index.data.passage_ids), np.float32)  # type: ignore[attr-defined]

    monkeypatch.setattr(passage_scores, "word_scores", none)
