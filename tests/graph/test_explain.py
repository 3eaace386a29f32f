"""An explanation agrees with the modes: ranks, scores, the links that lead to a passage and the passages ranked above it."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph import explain
from graph.build.build import build_index
from graph.documents.parse.formats import Limits
from graph.documents.read import read_documents
from graph.errors import UserError
from graph.explain import Explanation, explain_passage, find_passage
from graph.index.index import Index, open_index
from graph.retrieve.hops import mode
from graph.retrieve.modes.baselines import DEPTH
from graph.retrieve.parts.passage_scores import score_alone
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import MODES
from graph.store.index_settings import IndexSettings
from graph.types import Document, Encoder
from serve.show import show_explanation
from tests.fakes import HashEncoder
from tests.graph.hashed import build, query_of
from tests.graph.retrieve.wordless import leave_words_out
from tests.places import ROOT

PATTERNS = (
    "*brandt*.md",
    "ferry-*.md",
    "grey-heron*.md",
    "*petrel*.md",
    "lantern-*.md",
    "bell-survey-1998.md",
    "ida-*.md",
)
QUESTION = "Who founded the yard that built the Lantern?"
ALL_PASSAGES = RetrieveSettings(mode="hops", top_k=100, selector="none")
PETREL_QUESTION = "How many burrows of the lamp petrel were counted?"
ANSWERS = {QUESTION: "brandt-yard.md", PETREL_QUESTION: "petrel-count-final.md"}


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory, minilm: Encoder) -> Index:
    """An index of some of the example documents: about the yard, its ships, and some birds."""
    folder = tmp_path_factory.mktemp("harbour")
    (folder / "documents").mkdir()
    for pattern in PATTERNS:
        for file in (ROOT / "examples" / "documents").glob(pattern):
            shutil.copy(file, folder / "documents")
    documents = read_documents(folder / "documents", print, Limits(4.5, 512))
    build_index(folder / "index", documents, IndexSettings(), lambda spec: minilm)
    return open_index(folder / "index", lambda spec: minilm)


def id_of(index: Index, source: str) -> str:
    return index.passages_of(source)[0].id


def explanation_of(index: Index, question: str, source: str, **values: Any) -> Explanation:
    settings = RetrieveSettings.model_validate({"mode": "hops", **values})
    return explain_passage(index, question, id_of(index, source), settings)


@pytest.mark.parametrize("question", ANSWERS)
def test_ranks_and_scores_are_those_of_each_mode(harbour: Index, question: str) -> None:
    explanation = explanation_of(harbour, question, ANSWERS[question], top_k=4)
    assert (
        sorted(each.mode for each in explanation.standings) == sorted(set(MODES) - {"plan"})
        and explanation.standings[0].mode == "hops"
    )
    for each in explanation.standings:
        found = retrieve(harbour, question, RetrieveSettings(mode=each.mode, top_k=4)).passages
        sources = [passage.item.source for passage in found]
        assert (each.first_score, each.last_score, each.found) == (found[0].score, found[-1].score, len(found))
        if each.rank is not None and each.rank <= len(found):
            assert (sources[each.rank - 1], found[each.rank - 1].score) == (ANSWERS[question], each.score)
        else:
            assert ANSWERS[question] not in sources


def test_a_rank_is_reported_however_low_it_is(harbour: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dense` compared with a slow reference, for the passage that is least similar to the question."""
    cosines_P = harbour.data.passage_vectors_PD @ harbour.encode_queries([QUESTION])[0]
    last = harbour.passage(int(cosines_P.argmin()))
    monkeypatch.setattr(explain, "SEARCH_DEPTHS", (2, 10_000))
    explanation = explain_passage(harbour, QUESTION, last.id, RetrieveSettings(mode="dense", top_k=3))
    dense = explanation.standings[0]
    assert (dense.rank, dense.ranked, dense.found) == (len(cosines_P), len(cosines_P), 3)
    assert dense.score == pytest.approx(float(cosines_P.min())) and dense.last_score == np.sort(cosines_P)[-3]
    assert [each.score for each in explanation.before] == pytest.approx(np.sort(cosines_P)[::-1][:3].tolist())


@pytest.mark.long
def test_a_low_rank_in_hybrid_is_that_of_the_usual_fusion(tmp_path: Path) -> None:
    """`hybrid` fuses the first DEPTH passages of two rankings; deeper rankings would change the order."""
    texts = [f"Crane {n % 7} lifts {n * n % 1009} crates in shed {n % 13}." for n in range(DEPTH + 100)]
    index = build(tmp_path / "cranes", [Document(f"c{n:04}", "", text) for n, text in enumerate(texts)])
    question = "Which crane lifts 5 crates in shed 3?"
    fused = retrieve(index, question, RetrieveSettings(mode="hybrid", top_k=DEPTH)).passages
    settings = RetrieveSettings(mode="hybrid")
    deep = explain.search_deeper(index, retrieve(index, question, settings), fused[700].item.id, settings)
    assert explain.position_in(deep, fused[700].item.id) == 700


def test_a_passage_that_a_mode_does_not_find_has_no_rank(harbour: Index) -> None:
    """The petrel count contains no word of the question."""
    explanation = explanation_of(harbour, "Johanna Brandt retired", "petrel-count-final.md", mode="lexical")
    assert (explanation.standings[0].rank, explanation.standings[0].score, explanation.standings[0].path) == (
        None,
        None,
        (),
    )
    assert 0 < explanation.standings[0].ranked < len(harbour.data.passage_ids)
    assert {clue.text: clue.held for clue in explanation.words} == {"johanna": False, "retired": False, "brandt": False}
    assert len(explanation.before) == 5 and {"brandt-yard.md", "johanna-brandt.md"} < {
        each.item.source for each in explanation.before
    }


def test_the_field_before_lists_the_passages_ranked_higher(harbour: Index) -> None:
    explanation = explanation_of(harbour, QUESTION, "brandt-yard.md", mode="auto", selector="none")
    assert explanation.standings[0].rank == 2 and [each.item.source for each in explanation.before] == [
        "ferry-lantern.md"
    ]
    assert explanation.standings[0].steps[0].startswith("hops, because")
    assert explanation_of(harbour, QUESTION, "ferry-lantern.md", selector="none").before == ()


def test_the_first_lead_to_a_passage_is_the_link_that_hops_followed(harbour: Index) -> None:
    explanation = explanation_of(harbour, QUESTION, "brandt-yard.md", selector="none")
    lead = explanation.leads[0]
    assert (lead.passage.source, lead.rank, lead.by_title, lead.followed) == ("ferry-lantern.md", 1, True, True)
    assert lead.entity == "Brandt Yard" and "at the Brandt Yard" in lead.proposition
    assert lead.worth == pytest.approx(explanation.standings[0].score) and lead.worth > explanation.own_score
    path = explanation.standings[0].path
    words = "shares with the question: “founded”, “built”, “yard”"
    assert path == (f"“{lead.proposition}”", "mentions “Brandt Yard”", "and this is the document of that name", words)


@pytest.mark.long
def test_links_by_title_lead_only_to_the_best_passage_of_a_document(tmp_path: Path) -> None:
    """Only passages that share a rare entity with another passage link to it, even if many passages mention the title, which is not rare."""
    tarn = (
        "Tarn is a village that ships sail to and from in summer. The Quill Mill burned in 1901 and was never rebuilt."
    )
    documents = [Document(f"ship{n}", "", f"Ship number {n} sails to Tarn.") for n in range(mode.MAX_MENTIONS)]
    documents.append(Document("tarn", "Tarn", tarn))
    question = "Which ship sails to Tarn?"
    index = build(tmp_path / "plain", documents, max_passage_tokens=16)
    best, other = (explain_passage(index, question, each.id, ALL_PASSAGES) for each in index.passages_of("tarn"))
    assert best.leads[0].by_title and other.leads == () and other.own_rank > best.own_rank
    shown = " ".join(show_explanation(other).split())
    assert "- none: no other document shares a rare entity with it, and no link by title leads to it" in shown
    documents.append(Document("mill", "", "Ida Brandt left the Quill Mill early."))
    index = build(tmp_path / "shared", documents, max_passage_tokens=16)
    other = explain_passage(index, question, index.passages_of("tarn")[1].id, ALL_PASSAGES)
    assert [(lead.passage.source, lead.entity) for lead in other.leads] == [("mill", "Quill Mill")]


def test_the_lift_of_words_is_their_contribution_to_the_score(harbour: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lift` is the difference from the score without words; a passage that contains none of the words has no lift."""
    explanation = explanation_of(harbour, QUESTION, "brandt-yard.md")
    assert set(explanation.lifted_by) == {
        clue.text for clue in explanation.words if clue.held and clue.text != "lantern"
    }
    bare = explanation_of(harbour, "xylophone", "petrel-count-final.md")
    assert (bare.lift, bare.lifted_by) == (0, ())
    leave_words_out(monkeypatch)
    without = explanation_of(harbour, QUESTION, "brandt-yard.md")
    assert explanation.lift > 0.01 and explanation.own_score - explanation.lift == pytest.approx(
        without.own_score, abs=1e-6
    )
    assert (without.lift, without.lifted_by) == (0, ())


@pytest.mark.parametrize("seeds", [1, 3, 9])
def test_hops_scores_a_passage_by_the_best_link_from_its_seeds(
    harbour: Index, monkeypatch: pytest.MonkeyPatch, seeds: int
) -> None:
    """The worth of a link that was not followed is the score that it would give if the passage that it starts from ranked among the seeds."""
    monkeypatch.setattr(mode, "SEEDS", seeds)
    monkeypatch.setattr(explain, "SEEDS", seeds)
    linked = 0
    for question in (QUESTION, PETREL_QUESTION, "Who broke the bottle at the launch of the ferry?"):
        scores = {each.item.id: each.score for each in retrieve(harbour, question, ALL_PASSAGES).passages}
        query = query_of(harbour, question)
        alone = score_alone(harbour, query)
        for row, identity in enumerate(harbour.data.passage_ids):
            found = explain.leads_to(harbour, query, alone, row, 100)
            assert [lead.followed for lead in found] == [lead.rank <= seeds for lead in found]
            followed = [lead.worth for lead in found if lead.followed]
            assert scores[identity] == pytest.approx(max([float(alone.own_P[row]), *followed]))
            linked += scores[identity] > alone.own_P[row]
    assert linked >= 1


def test_clues_are_the_words_and_names_of_the_question_rarest_first(harbour: Index) -> None:
    explanation = explanation_of(harbour, "Was the Grey Heron xylophone launched?", "grey-heron-cutter.md")
    words = {clue.text: (clue.passages, clue.held) for clue in explanation.words}
    texts = [text.casefold() for text in harbour.data.passage_texts]
    assert words["xylophone"] == (0, False) and words["heron"][1] and words["launched"][1]
    assert explanation.words[0].text == "xylophone" and [c.passages for c in explanation.words] == sorted(
        c.passages for c in explanation.words
    )
    assert words["heron"][0] == sum("heron" in text for text in texts) and not words.keys() & {"was", "the"}
    assert ("Grey Heron", True) in {(clue.text, clue.held) for clue in explanation.names}


def test_the_propositions_of_the_passage_are_listed_with_their_rank_among_all_propositions(harbour: Index) -> None:
    explanation = explanation_of(harbour, QUESTION, "brandt-yard.md")
    cosines = harbour.data.proposition_vectors_ND @ harbour.encode_queries([QUESTION])[0]
    rows = [
        row
        for row, text in enumerate(harbour.data.proposition_texts)
        if text in {each.text for each in explanation.propositions}
    ]
    expected = sorted(((float(cosines[row]), int((cosines > cosines[row]).sum()) + 1) for row in rows), reverse=True)
    assert [(each.cosine, each.rank) for each in explanation.propositions] == expected and len(expected) == 3


def test_conditions_apply_to_the_whole_explanation(harbour: Index) -> None:
    explanation = explanation_of(harbour, QUESTION, "brandt-yard.md", where=("source!=ferry*",))
    sources_shown = [each.item.source for each in explanation.before] + [
        lead.passage.source for lead in explanation.leads
    ]
    assert sources_shown and not any(source.startswith("ferry") for source in sources_shown)
    with pytest.raises(
        UserError, match=r"'brandt-yard.md', does not meet source=ferry.*Leave out the condition that excludes it"
    ):
        explanation_of(harbour, QUESTION, "brandt-yard.md", where=("source=ferry*",))


def test_a_passage_can_be_named_by_the_first_digits_of_its_id(harbour: Index) -> None:
    ids = list(harbour.data.passage_ids)
    assert [find_passage(harbour, each[:8].upper()) for each in ids] == list(range(len(ids)))
    for prefix, message in (
        ("zz", r"passage 'zz': not in .*`modegraph ask` shows the ids"),
        ("", r"passage '': not in "),
        (_shared_start(ids), r"ids start with it\. Expected one of [0-9a-f]{32}, [0-9a-f]{32}.*Give more"),
    ):
        with pytest.raises(UserError, match=message):
            find_passage(harbour, prefix)


def test_a_source_names_its_only_passage_and_the_error_for_a_longer_document_lists_its_passages(
    harbour: Index, tmp_path: Path
) -> None:
    assert harbour.passage(find_passage(harbour, "brandt-yard.md")).id == id_of(harbour, "brandt-yard.md")
    sentences = " ".join(f"Ferry number {number} of the harbour sails to Tarn at noon." for number in range(200))
    encoder = HashEncoder()
    build_index(tmp_path / "long", [Document("long", "", sentences)], IndexSettings(), lambda spec: encoder)
    long = open_index(tmp_path / "long", lambda spec: encoder)
    passages = long.passages_of("long")
    message = rf"'long': a document of {len(passages)} passages\. Expected one of {passages[0].id[:8]} \(0–{passages[0].end}\)"
    with pytest.raises(UserError, match=message):
        find_passage(long, "long")


def test_an_exact_source_takes_precedence_over_the_first_digits_of_an_id(tmp_path: Path) -> None:
    named_by_digit = [Document(digit, "", f"Ferry {digit} sails to Tarn.") for digit in "0123456789abcdef"]
    index = build(tmp_path / "digits", named_by_digit)
    assert [index.passage(find_passage(index, each.source)).source for each in named_by_digit] == list(
        "0123456789abcdef"
    )
    assert [find_passage(index, each) for each in index.data.passage_ids] == list(range(16))


def test_an_empty_question_is_refused(harbour: Index) -> None:
    with pytest.raises(UserError, match="the question is empty"):
        explanation_of(harbour, "  ", "brandt-yard.md")


def _shared_start(ids: list[str]) -> str:
    return next(each[0] for each in ids if sum(other[0] == each[0] for other in ids) > 1)
