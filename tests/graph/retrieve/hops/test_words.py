"""The occurrences of a question's words in passages and texts, compared with a slow scan of the texts."""

import numpy as np
import pytest

from graph.index.index import Index
from graph.retrieve.hops.hop_features import QuestionWords, share
from graph.text.bm25 import terms_of
from graph.text.word_forms import form_of

QUESTION = "Who founded the yards that built the Lantern, and was a xylophone played there?"


def test_words_are_found_in_passages_and_texts_in_any_form(isles: Index) -> None:
    words = QuestionWords(isles, QUESTION, ["The Lantern"])
    forms = [form_of(word) for word in ("founded", "yards", "built", "lantern", "xylophone", "played")]
    passages = np.arange(0, len(isles.data.passage_ids), 3)
    texts = [isles.data.passage_texts[row] for row in passages.tolist()]
    slow = [[form in {form_of(term) for term in terms_of(text)} for text in texts] for form in forms]
    assert words.in_passages(passages).tolist() == np.array(slow, np.float32).tolist()
    assert 0 < words.in_passages(passages)[1].sum() < len(passages), "some passages, but not all, should mention a yard"
    assert words.in_texts(["The founder of a yard", "played, played"]).tolist() == [
        [1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1],
    ]
    assert words.named_W.tolist() == [False, False, False, True, False, False]
    assert words.unnamed_W[3] == 0 < words.weight_W[3]
    assert words.weight_W.argmax() == 4, "a word that occurs in no passage should have the greatest weight"


def test_shares_of_words_equal_a_calculation_by_hand(isles: Index) -> None:
    words = QuestionWords(isles, QUESTION, [])
    shares = words.share_in_question(["the Lantern", "by Marlow Yard now", "bees", ""])
    assert shares.tolist() == [0.5, 0.25, 0.0, 0.0]
    has_WC = words.in_texts(["lantern", "xylophone lantern"]).T
    heavy = words.weight_W[[3, 4]].sum() / words.weight_W.sum()
    assert share(words.weight_W, has_WC)[1] == pytest.approx(float(heavy))
