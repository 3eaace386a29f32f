"""How well a context supports the reasoning of an answer, on a real index; the expected cosines are computed with the same hash encoder."""

import numpy as np
import pytest

from data_synth.preferences.support import MIN_NAMED, MIN_SIMILARITY, Support, SupportScorer, sentences_of, share_named
from data_synth.rows import Draft
from graph.answer.context import of_passage
from graph.build.build import build_index
from graph.documents.questions import Question
from graph.index.index import Index, open_index
from graph.index.normalised_similarity import normalised_similarity
from graph.store.index_settings import IndexSettings
from graph.types import Excerpt
from tests.corpora import ISLES
from tests.fakes import HashEncoder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("support") / "index"
    build_index(folder, ISLES, IndexSettings(), lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


def excerpts_of(index: Index, source: str) -> tuple[Excerpt, ...]:
    return tuple(of_passage(passage) for passage in index.passages_of(source))


def support(index: Index, reason: str, *contexts: tuple[Excerpt, ...], question: str = "") -> list[Support]:
    drafts = [Draft(Question("q", question, ()), "", context) for context in contexts]
    return SupportScorer(index).of_drafts(drafts, [reason] * len(contexts))


def test_similarity_is_the_mean_over_sentences_of_the_best_similarity(index: Index) -> None:
    reason = "She was born in Tarn and died on 4 May 1931 [1]. The moon is green."
    (found,) = support(index, reason, excerpts_of(index, "ada"))
    texts = [
        t for n, t in enumerate(index.data.proposition_texts) if "ada" in {s.source for s in index.proposition(n).spans}
    ]
    encode = HashEncoder().encode
    sentences = ["She was born in Tarn and died on 4 May 1931.", "The moon is green."]
    assert sentences_of(reason) == sentences
    best = np.array([(encode([sentence]) @ encode(texts).T).max() for sentence in sentences])
    expected = normalised_similarity(index, best).mean()
    assert found.normalised_similarity == pytest.approx(float(expected), abs=1e-5)


def test_the_context_of_another_document_gives_less_support(index: Index) -> None:
    reason, question = "Ada Marlow was born in Tarn and died on 4 May 1931.", "Where was Ada Marlow born?"
    contexts = (excerpts_of(index, "ada"), excerpts_of(index, "bread"), ())
    own, other, none = support(index, reason, *contexts, question=question)
    assert own.normalised_similarity > other.normalised_similarity > none.normalised_similarity == 0.0
    assert own.named == 1.0 and other.named == pytest.approx(2 / 3), (
        "the question and the bread page name Ada and Tarn, but not the date"
    )


def test_a_summary_is_scored_by_its_passages_and_a_proposition_by_its_text(index: Index) -> None:
    reason = "She was born in Tarn."
    quoted = excerpts_of(index, "ada")
    summed = Excerpt("s", "Summary", "About Ada.", members=tuple(excerpt.id for excerpt in quoted))
    row = next(n for n, text in enumerate(index.data.proposition_texts) if "born in Tarn" in text)
    stated = Excerpt(index.data.proposition_ids[row], "Ada", index.data.proposition_texts[row])
    by_passage, by_summary, by_proposition = support(index, reason, quoted, (summed,), (stated,))
    assert by_passage.normalised_similarity > 0.5
    assert (
        by_passage.normalised_similarity
        == by_summary.normalised_similarity
        == pytest.approx(by_proposition.normalised_similarity, abs=1e-5)
    )


def test_a_name_counts_if_one_text_contains_all_of_it() -> None:
    assert share_named("The yard of Ada Marlow burned.", ["Ada Quill", "Marlow Yard"]) == 0.0
    assert share_named("nothing of note", []) == 1.0


@pytest.mark.parametrize(
    ("normalised_similarity", "named", "holds"),
    [(MIN_SIMILARITY, MIN_NAMED, True), (MIN_SIMILARITY - 0.01, 1.0, False), (1.0, MIN_NAMED - 0.01, False)],
)
def test_support_needs_both_similarity_and_names(normalised_similarity: float, named: float, holds: bool) -> None:
    assert Support(normalised_similarity, named).holds is holds
