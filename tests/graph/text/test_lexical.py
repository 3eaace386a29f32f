"""`lexical` gives the same scores as bm25s and finds only passages with a word of the question; `hybrid` equals the formula of rank fusion."""

from typing import Any

import numpy as np
import pytest
from bm25s import BM25
from hypothesis import given
from hypothesis import strategies as st

from graph.extract.entities import entity_key
from graph.extract.grounding import words_of
from graph.index.index import Index, TermScores
from graph.retrieve.modes.baselines import fuse_ranks
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.parts.ranking import top_rows
from graph.retrieve.retrieve import retrieve
from graph.text.bm25 import K1, B, bm25, count_terms, term_weights, terms_of
from graph.text.word_forms import Words
from tests.corpora import ISLES

WORDS = ["ferry", "ferry,", "the", "Quill", "1911", "10:30", "東京都", "สวัสดี", "kelp", "…"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Lantern, built in 1911", ["the", "lantern", "built", "in", "1911"]),
        ("snake_case at 10:30", ["snake", "case", "at", "10", "30"]),
        ("café CAFE\u0301 STRASSE straße", ["café", "café", "strasse", "strasse"]),
        ("東京都は2020年", ["東京", "京都", "都は", "2020", "年"]),
        ("ｶﾀｶﾅ", ["カタ", "タカ", "カナ"]),
        ("ไทยดี", ["ไท", "ทย", "ยด", "ดี"]),
        ("हिन्दी में।", ["हिन्दी", "में"]),
        ("— … !", []),
        ("Lan\u00adtern", ["lantern"]),
    ],
)
def test_words_numbers_and_pairs_of_characters_are_terms(text: str, terms: list[str]) -> None:
    assert terms_of(text) == terms


def test_a_word_is_one_word_with_decomposed_accents_soft_hyphens_and_marks() -> None:
    for text, word in (
        ("Cafe\u0301", "café"),
        ("Lan\u00adtern", "lantern"),
        ("Петро\u0301в", "петро\u0301в"),
        ("मीनार", "मीनार"),
    ):
        assert Words.of(text).lower == (word,) and words_of(text) == {word} and entity_key(text) == word


@given(st.text(st.characters(max_codepoint=0x24F)))
def test_a_character_of_another_script_elsewhere_changes_no_term(text: str) -> None:
    assert terms_of(f"{text} 京") == [*terms_of(text), "京"]


def weights(count_WP: Any) -> tuple[np.ndarray, np.ndarray]:
    return term_weights(np.diff(count_WP.indptr).astype(np.int64), count_WP.sum(axis=0).astype(np.int64))


def scores_of(count_WP: Any) -> TermScores:
    return TermScores(count_WP, np.diff(count_WP.indptr), *weights(count_WP))


def test_a_score_equals_a_calculation_by_hand() -> None:
    """Lucene's BM25: ln(1 + (N − n + ½)/(n + ½)) · f/(f + k1(1 − b + b·|d|/avg)); two texts, "b" in both, "a" in one."""
    counts = count_terms(["a b", "b b c d"])
    idf_W, norm_P = weights(counts.count_WP)
    scores_WP = bm25(counts.count_WP.toarray(), idf_W[:, None], norm_P)
    assert counts.terms == ["a", "b", "c", "d"]
    short, long = K1 * (1 - B + B * 2 / 3), K1 * (1 - B + B * 4 / 3)
    rare, common = np.log(1 + 1.5 / 1.5), np.log(1 + 0.5 / 2.5)
    assert scores_WP[:2] == pytest.approx(
        np.array([[rare / (1 + short), 0], [common / (1 + short), common * 2 / (2 + long)]]), rel=1e-6
    )


@pytest.mark.long
@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=8), min_size=1, max_size=8), st.lists(st.sampled_from(WORDS)))
def test_scores_and_ranking_are_those_of_bm25s(corpus: list[list[str]], query_words: list[str]) -> None:
    texts, question = [" ".join(words) for words in corpus], " ".join(query_words)
    counts = count_terms(texts)
    terms = counts.terms
    known = [terms.index(term) for term in terms_of(question) if term in terms]
    of_terms = scores_of(counts.count_WP)
    scores_P = of_terms.sum(known)
    assert of_terms.sum(known).tobytes() == scores_P.tobytes(), "cached scores should be the same"
    if not terms:
        assert not scores_P.any()
        return
    reference = BM25(k1=K1, b=B, method="lucene")
    reference.index([terms_of(text) for text in texts], show_progress=False)
    query_terms = [term for term in terms_of(question) if term in terms]
    found, scored = reference.retrieve([query_terms], k=len(texts), show_progress=False)
    assert scores_P[found[0]].tolist() == scored[0].tolist()
    assert scores_P[top_rows(scores_P, len(texts))].tolist() == scored[0].tolist()


def test_the_cache_of_frequent_terms_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among eight texts even "c", which occurs in one, is frequent; the cache cannot hold two columns of 32 bytes."""
    counts = count_terms(["a b c", "b", "a b", "a", "a b", "b a", "a", "b"])
    monkeypatch.setattr("graph.index.index.MAX_CACHED_BYTES", 40)
    of_terms = scores_of(counts.count_WP)
    separate = [of_terms.sum([row]) for row in range(3)]
    assert of_terms._frequent.cache_info().currsize == 1
    assert np.array_equal(of_terms.sum([0, 1, 1, 2]), separate[0] + separate[1] + separate[1] + separate[2])
    computed = of_terms._frequent.cache_info().misses
    assert np.array_equal(of_terms.sum([2]), separate[2]) and of_terms._frequent.cache_info().misses == computed


def test_lexical_ranks_titles_and_texts_as_bm25s_does(isles: Index) -> None:
    question = "Who founded the Marlow Yard that built the Lantern?"
    documents = sorted(ISLES, key=lambda document: document.source)
    titled = {"lantern": f"Lantern (ferry)\n{documents[2].text}", "marlow": f"Marlow Yard\n{documents[3].text}"}
    reference = BM25(k1=K1, b=B, method="lucene")
    reference.index([terms_of(titled.get(each.source, each.text)) for each in documents], show_progress=False)
    query_terms = [term for term in terms_of(question) if term in reference.vocab_dict]
    found, scored = reference.retrieve([query_terms], k=3, show_progress=False)
    evidence = retrieve(isles, question, RetrieveSettings(mode="lexical", top_k=3))
    assert [each.item.source for each in evidence.passages] == [documents[place].source for place in found[0]]
    assert [each.score for each in evidence.passages] == scored[0].tolist()


def test_passages_without_a_word_of_the_question_are_not_found(isles: Index) -> None:
    assert [p.item.source for p in retrieve(isles, "nine barley", RetrieveSettings(mode="lexical")).passages] == [
        "bread"
    ]
    nothing = retrieve(isles, "xylophone 東京", RetrieveSettings(mode="lexical"))
    assert nothing.passages == () and nothing.trace.steps == ("0 of 2 terms of the question are in the index",)
    found = retrieve(isles, "Is the kelp dried in Tarn?", RetrieveSettings(mode="lexical", top_k=1))
    assert found.paths == (("shares with the question: “kelp”, “dried”, “tarn”",),)
    by_function_words = retrieve(isles, "Is it in the", RetrieveSettings(mode="lexical"))
    assert by_function_words.passages and set(by_function_words.paths) == {()}


def test_ranks_are_fused_by_their_reciprocals() -> None:
    """Cormack et al. 2009 with k = 60: row 1 is second and first, row 0 first and third, row 2 in one ranking only."""
    fused = fuse_ranks([np.array([0, 1]), np.array([1, 2, 0])], 4)
    assert fused.tolist() == pytest.approx([1 / 61 + 1 / 63, 1 / 62 + 1 / 61, 1 / 62, 0], rel=1e-6)


def test_hybrid_is_the_fusion_of_dense_and_lexical(isles: Index) -> None:
    question = "Who founded the yard in Quill?"
    fused: dict[str, float] = {}
    for mode in ("dense", "lexical"):
        ranked = retrieve(isles, question, RetrieveSettings(mode=mode, top_k=100)).passages  # type: ignore[arg-type]
        for rank, found in enumerate(ranked, start=1):
            fused[found.item.source] = fused.get(found.item.source, 0) + 1 / (60 + rank)
    hybrid = retrieve(isles, question, RetrieveSettings(mode="hybrid", top_k=100))
    assert {found.item.source: found.score for found in hybrid.passages} == pytest.approx(fused, rel=1e-6)
    scores = [found.score for found in hybrid.passages]
    assert scores == pytest.approx(sorted(fused.values(), reverse=True), rel=1e-6)
    assert hybrid.paths[0] == ("no. 1 by meaning", "no. 1 by words")
