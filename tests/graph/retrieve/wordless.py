"""`hops` without the gain for the question's words: trained selectors use the scores of this variant as features."""

import numpy as np
import pytest

from graph.retrieve.parts import passage_scores


def leave_words_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the word score of every passage to 0."""

    def no_scores(index: object, terms: object) -> np.ndarray:
        return np.zeros(len(index.data.passage_ids), np.float32)  # type: ignore[attr-defined]

    monkeypatch.setattr(passage_scores, "word_scores", no_scores)
