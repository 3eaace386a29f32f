"""Spellings of one person: initials against the whole index, bare surnames within one document."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.aliases import full_names
from graph.arrays import load_arrays
from graph.build import build_index
from graph.data import IndexData
from graph.extract.rules import people_by_surname
from graph.index import Index, open_index
from graph.lifecycle import delete_documents
from graph.retrieve import RetrieveSettings, retrieve
from graph.settings import IndexSettings
from graph.types import Document
from tests.fakes import HashEncoder
from tests.graph.same import assert_same_index

LETTER = Document("letter", "The letter", "The letter from J. Brandt lies in the museum of Tarn. It is short.")
FULL = Document(
    "johanna", "The yard", "Work on the slip was led by Johanna Brandt until 1911. Later Brandt sold the slip."
)
OTHER = Document("jonas", "The mill", "The mill was bought by Jonas Brandt in 1920.")


def build(folder: Path, *documents: Document) -> Index:
    build_index(folder, documents, IndexSettings(), lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


def names_of(index: Index, start: str) -> set[str]:
    rows = [row for row in range(len(index.data.proposition_ids)) if start in index.data.proposition_texts[row]]
    assert len(rows) == 1
    return {index.data.name_texts[name] for name in index.data.proposition_name_NE[rows, :].indices}


@pytest.mark.parametrize(
    ("keys", "pairs"),
    [
        (["j. smith", "john smith"], [(0, 1)]),
        (["john smith", "j. smith", "jane smith"], []),
        (["j. r. smith", "john ronald smith", "john smith"], [(0, 1)]),
        (["j.r. smith", "john ronald smith"], [(0, 1)]),
        (["j. smith", "john smith", "j. smythe", "k. smith"], [(0, 1)]),
        (["j. van der berg", "jan van der berg"], []),
        (["a. 1911", "may 1911", "st. mary", "smith"], []),
        (["é. durand", "élodie durand"], [(0, 1)]),
    ],
)
def test_initials_fit_one_full_name_or_none(keys: list[str], pairs: list[tuple[int, int]]) -> None:
    assert full_names(keys) == pairs


@given(st.permutations(["j. smith", "john smith", "jane jones", "j. jones", "jack jones", "a. b. lee", "ann beth lee"]))
def test_the_order_of_names_has_no_say(keys: list[str]) -> None:
    assert {(keys[a], keys[b]) for a, b in full_names(keys)} == {
        ("j. smith", "john smith"),
        ("a. b. lee", "ann beth lee"),
    }


def test_an_alias_is_a_mention_of_the_full_name(tmp_path: Path) -> None:
    index = build(tmp_path / "i", LETTER, FULL)
    assert {"j. brandt", "johanna brandt"} <= names_of(index, "J. Brandt lies")
    assert "j. brandt" not in names_of(index, "Johanna Brandt until")
    found = retrieve(index, "Where was the writer of The letter at work?", RetrieveSettings(mode="walk", top_k=2))
    assert {passage.item.source for passage in found.passages} == {"letter", "johanna"}


def test_a_second_candidate_ends_the_alias_and_its_going_brings_it_back(tmp_path: Path) -> None:
    before = load_arrays(build(tmp_path / "i", LETTER, FULL).folder, IndexData)
    both = build(tmp_path / "i", OTHER)
    assert names_of(both, "J. Brandt lies") & {"johanna brandt", "jonas brandt"} == set()
    delete_documents(tmp_path / "i", ["jonas"], lambda spec: HashEncoder())
    assert_same_index(before, load_arrays(tmp_path / "i", IndexData))
    build(tmp_path / "other order", FULL)
    assert_same_index(before, load_arrays(build(tmp_path / "other order", LETTER).folder, IndexData))


def test_a_bare_surname_is_the_document_s_own_person(tmp_path: Path) -> None:
    index = build(tmp_path / "i", FULL, OTHER)
    assert "johanna brandt" in names_of(index, "sold the slip")
    two = Document(
        "two", "Two", "The ship was built by Ada Marlow. The sails came from Ben Marlow. Later Marlow died in Tarn."
    )
    assert names_of(build(tmp_path / "two", two), "Later Marlow died") & {"ada marlow", "ben marlow"} == set()


def test_places_and_single_words_are_nobody_s_surname() -> None:
    assert people_by_surname(["New York", "Great Orrin", "Quill", "Port Ellery", "The Hague", "Salt Row 3"]).keys() <= {
        "hague"
    }
    assert people_by_surname(["Ada Marlow", "ada marlow", "Ada Marlow"]) == {"marlow": "Ada Marlow"}
