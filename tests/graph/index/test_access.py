"""`Index.only`, for readers who may see only some of the documents: its texts, term weights and scores are those of an index without the hidden documents."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from graph.build.lifecycle import delete_documents
from graph.index.filters import parse_condition
from graph.index.index import Index, open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.store.columns.strings import Strings
from graph.store.data import IndexData
from graph.types import Document, Summary
from tests.graph.hashed import build, encoder

ALLOWED = [
    Document(
        "a/lantern", "Lantern", "The Lantern is a ferry of Port Ellery. It was built by Ada Marlow.", {"team": "sea"}
    ),
    Document("a/tarn", "Tarn", "Tarn is a village of 312 people. The ferry calls at Tarn.", {"team": "sea"}),
    Document("a/bread", "Kelp bread", "Kelp bread is baked in Tarn. It keeps for nine days.", {"team": "sea"}),
]
HIDDEN = [
    Document(
        "b/wreck", "Zanzibar Wreck", "The Zanzibar Wreck lies off Tarn. The ferry avoids Quaxley.", {"team": "hill"}
    ),
    Document("b/tarn", "Quaxley", "Tarn is a village of 312 people. Quaxley is ferry ferry ferry.", {"team": "hill"}),
    Document("b/none", "Vurmond", "Vurmond has no team. The bread of Vurmond is ferry bread."),
]
TEAM_SEA = (parse_condition("team=sea"),)
HIDDEN_WORDS = ("zanzibar", "quaxley", "vurmond")


@pytest.fixture(scope="module")
def restricted_and_separate_index(tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Index]:
    """The index of all documents, restricted to what readers of team=sea may see, and an index of these documents alone."""
    folder = tmp_path_factory.mktemp("access")
    return build(folder / "all", ALLOWED + HIDDEN).only(TEAM_SEA), build(folder / "own", ALLOWED)


def texts_of(data: IndexData) -> Iterator[tuple[str, str]]:
    for field in fields(data):
        column = getattr(data, field.name)
        if isinstance(column, Strings):
            yield from ((field.name, text) for text in column)


def test_no_column_contains_a_word_of_a_hidden_document(restricted_and_separate_index: tuple[Index, Index]) -> None:
    restricted, _ = restricted_and_separate_index
    found = [
        (name, text)
        for name, text in texts_of(restricted.data)
        if any(word in text.casefold() for word in HIDDEN_WORDS)
    ]
    assert found == []
    assert "b/" not in {source[:2] for source in restricted.sources()} and len(restricted.sources()) == 3


def test_a_filter_alone_leaves_words_of_hidden_documents(tmp_path: Path) -> None:
    """This is why such readers need `only` instead of `where`."""
    filtered = build(tmp_path / "all", ALLOWED + HIDDEN).where(TEAM_SEA)
    assert any(any(word in text.casefold() for word in HIDDEN_WORDS) for _, text in texts_of(filtered.data))


def test_terms_and_entities_equal_those_of_a_separate_index(restricted_and_separate_index: tuple[Index, Index]) -> None:
    restricted, alone = restricted_and_separate_index
    assert list(restricted.data.term_texts) == list(alone.data.term_texts)
    np.testing.assert_array_equal(restricted.data.term_idf_W, alone.data.term_idf_W)
    np.testing.assert_allclose(restricted.data.term_norm_P, alone.data.term_norm_P, rtol=1e-12)
    assert set(restricted.data.entity_texts) == set(alone.data.entity_texts)
    assert list(restricted.data.passage_ids) == list(alone.data.passage_ids)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_results_and_scores_equal_those_of_a_separate_index(
    restricted_and_separate_index: tuple[Index, Index], mode: str
) -> None:
    settings = RetrieveSettings.model_validate({"mode": mode, "top_k": 9})
    for question in ("Where does the ferry call?", "Who built the Lantern?", "zanzibar quaxley bread"):
        restricted, alone = (retrieve(index, question, settings) for index in restricted_and_separate_index)
        assert [(each.item, round(each.score, 5)) for each in restricted.passages] == [
            (each.item, round(each.score, 5)) for each in alone.passages
        ]


def test_a_proposition_that_hidden_documents_also_state_has_only_entities_that_its_text_names(
    restricted_and_separate_index: tuple[Index, Index],
) -> None:
    restricted, _ = restricted_and_separate_index
    rows = [
        row for row, text in enumerate(restricted.data.proposition_texts) if text == "Tarn is a village of 312 people."
    ]
    assert len(rows) == 1
    shared = restricted.proposition(rows[0])
    assert {span.source for span in shared.spans} == {"a/tarn"}
    assert "Tarn" in shared.entities and all(entity in shared.text for entity in shared.entities)


def test_a_name_like_a_number_gives_access_to_the_document_of_that_name_only(tmp_path: Path) -> None:
    names = ("7", "007", "7.0", "7e0", "0_7")
    index = build(tmp_path / "own", [Document(name, "", f"The Lantern sailed in year {name}.") for name in names])
    for name in names:
        assert index.only((parse_condition(f"source={name}"),)).sources() == (name,)


def test_access_to_no_documents_gives_an_empty_index_and_to_all_documents_the_index_itself(tmp_path: Path) -> None:
    index = build(tmp_path / "own", ALLOWED)
    empty = index.only((parse_condition("team=nobody"),))
    assert (len(empty.sources()), len(empty.data.passage_ids), len(empty.data.entity_texts)) == (0, 0, 0)
    assert index.only((parse_condition("nokey!=x"),)) is index


def summaries_of(index: Index) -> list[Summary]:
    return [index.summary(row) for row in range(len(index.data.summary_ids))]


def test_no_summary_contains_a_sentence_that_only_hidden_documents_contain_after_a_deletion(tmp_path: Path) -> None:
    """The community keeps its summary when few of its documents are deleted, but not if the sentence was theirs, even if a hidden document repeats it."""
    sentence = "Tarn Hall closes at nine."
    texts = 14 * ["The wool guild of Tarn keeps its hall for wool work."]
    texts[3] += f" {sentence}"
    members = [Document(f"a/{n:02}", "", text, {"team": "sea"}) for n, text in enumerate(texts)]
    other = Document("b", "", f"Zebras graze on Quaxley hill. {sentence}", {"team": "hill"})
    index = build(tmp_path / "i", [*members, other], min_similarity=0.6, neighbours=13)
    (before,) = summaries_of(index)
    assert len(before.members) == 14 and sentence in before.text
    delete_documents(tmp_path / "i", ["a/03"], encoder)
    visible = open_index(tmp_path / "i", encoder).only(TEAM_SEA)
    assert [len(each.members) for each in summaries_of(visible)] == [13]
    assert [(name, text) for name, text in texts_of(visible.data) if sentence in text] == []
