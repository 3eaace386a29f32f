"""Titles that combine a found name with words of the question single out their documents."""

from pathlib import Path

import numpy as np
import pytest

from graph.explain import leads_to
from graph.index.index import Index
from graph.retrieve.hops import mode
from graph.retrieve.hops.mode import (
    TITLE_GAIN,
    Links,
    content_forms,
    mention_loss,
    raise_by_titles,
    search_hops,
    title_adds_question_words,
)
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.types import Document, Floats, Ints
from tests.graph.hashed import build, query_of

QUESTION = "Which alcohol laws does the state have where Corran High stands?"
STATES = ("Orrinland", "Sundrey", "Tarnia", "Pellmark")


def state_documents() -> list[Document]:
    """A school in one of four states, and laws and a history of each state."""
    school = Document("school", "Corran High", "Corran High stands in the state of Tarnia. It has 300 pupils.")
    of_states = [
        Document(f"{topic} {state}", f"{topic} of {state}", f"In {state} the old {topic.casefold()} changed in 1911.")
        for state in STATES
        for topic in ("Alcohol laws", "History")
    ]
    return [school, *of_states]


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(tmp_path_factory.mktemp("states") / "index", state_documents())


@pytest.mark.parametrize(
    ("name", "title", "expected"),
    [
        ("Tarnia", "Alcohol laws of Tarnia", True),
        ("Tarnia", "Laws and taverns of Tarnia", True),  # One of the two other words is in the question.
        ("Tarnia", "Laws, taverns and inns of Tarnia", False),  # One of the three other words is in the question.
        ("Tarnia", "History of Tarnia", False),
        ("Tarnia", "Tarnia", False),
        ("Tarnia", "Alcohol laws of Sundrey", False),
        ("West Tarnia", "Alcohol laws of Tarnia", False),
        ("Corran High", "Laws at Corran High", False),  # The question itself contains this name.
        ("the", "Alcohol laws", False),
    ],
)
def test_a_title_matches_only_with_a_new_name_and_at_least_half_of_its_other_words_in_the_question(
    name: str, title: str, expected: bool
) -> None:
    assert title_adds_question_words(content_forms(name), content_forms(title), content_forms(QUESTION)) == expected


def test_a_link_to_a_title_with_question_words_has_no_mention_penalty_and_gains_worth(
    states: Index,
) -> None:
    query = query_of(states, QUESTION)
    data, own_P = states.data, search_hops(states, query).alone.own_P
    tarnia = list(data.entity_texts).index("tarnia")
    to_X = np.array([passage_of(states, "Alcohol laws Tarnia"), passage_of(states, "History Tarnia")] * 2)
    by_title_X = np.array([0, 0, 1, 1])
    links = Links(to_X, np.ones(4, np.float32), np.zeros(4, np.int64), np.full(4, tarnia), by_title_X)
    mentions = len(np.flatnonzero(data.proposition_entity_NE[:, [tarnia]].toarray()))
    raised = raise_by_titles(states, links, QUESTION, own_P).worth_X
    assert raised == pytest.approx([1 + mention_loss(np.array(mentions)) + TITLE_GAIN, 1, 1, 1]) and mentions > 1
    weak = Links(to_X, np.full(4, -9, np.float32), np.zeros(4, np.int64), np.full(4, tarnia), by_title_X)
    assert np.array_equal(raise_by_titles(states, weak, QUESTION, own_P).worth_X, weak.worth_X), (
        "links with a very low worth should not be raised"
    )


def test_the_laws_of_the_state_that_was_found_rank_before_those_of_other_states(
    states: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sources_found() -> list[str]:
        found = retrieve(states, QUESTION, RetrieveSettings(mode="hops", top_k=9)).passages
        return [each.item.source for each in found]

    others = [f"Alcohol laws {state}" for state in STATES if state != "Tarnia"]
    assert sources_found().index("Alcohol laws Tarnia") < min(map(sources_found().index, others))
    query = query_of(states, QUESTION)
    reached = search_hops(states, query).reached_P[passage_of(states, "Alcohol laws Tarnia")]
    monkeypatch.setattr(mode, "QUESTION_SHARE", 2)
    assert search_hops(states, query).reached_P[passage_of(states, "Alcohol laws Tarnia")] < reached - 0.1


def test_the_best_passage_of_a_document_is_found_once_for_all_links_to_it_and_never_for_a_name_of_many_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document("start", "Start", "In spring Ada Bell saw Tarnia. In autumn Ben Hill saw Tarnia.")]
    documents += [Document(f"same-{n}", "Tarnia", f"Here is page {n} of the land.") for n in range(9)]
    index, calls = build(tmp_path / "same", documents), list[int]()
    best_passage = mode._best_passage

    def recorded(passage_document_P: Ints, own_P: Floats, document: int) -> int:
        calls.append(document)
        return best_passage(passage_document_P, own_P, document)

    monkeypatch.setattr(mode, "_best_passage", recorded)
    links = search_hops(index, query_of(index, "What did Ben Hill see in autumn?")).links
    assert links.title_X.sum() == 18 and len(calls) == len(set(calls)) == 9
    monkeypatch.setattr(mode, "MAX_NAMESAKES", 8)
    links = search_hops(index, query_of(index, "What did Ben Hill see in autumn?")).links
    assert links.title_X.sum() == 0 and len(calls) == 9


def test_a_passage_is_explained_by_the_link_that_hops_followed(states: Index) -> None:
    query, row = query_of(states, QUESTION), passage_of(states, "Alcohol laws Tarnia")
    found = search_hops(states, query)
    lead = leads_to(states, query, found.alone, row, 1)[0]
    assert lead.passage.source == "school" and lead.worth == pytest.approx(float(found.reached_P[row]))


def passage_of(index: Index, source: str) -> int:
    return int(np.flatnonzero(index.data.passage_document_P == index.sources().index(source))[0])
