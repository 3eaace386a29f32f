"""Spellings of a person's name: initials are matched in the whole index, bare surnames within one document."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.build.build import build_index
from graph.build.lifecycle import delete_documents
from graph.extract.entities import full_names, people_by_surname
from graph.extract.rules import extract_by_rules
from graph.index.index import Index, open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.types import Document, Passage
from tests.fakes import HashEncoder
from tests.graph.same import assert_same_index
from tests.growth import assert_linear

LETTER = Document("letter", "The letter", "The letter from J. Brandt lies in the museum of Tarn. It is short.")
YARD = Document(
    "johanna", "The yard", "Work on the slip was led by Johanna Brandt until 1911. Later Brandt sold the slip."
)
MILL = Document("jonas", "The mill", "The mill was bought by Jonas Brandt in 1920.")


def build(folder: Path, *documents: Document) -> Index:
    build_index(folder, documents, IndexSettings(), lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


def entities_of(index: Index, start: str) -> set[str]:
    rows = [row for row in range(len(index.data.proposition_ids)) if start in index.data.proposition_texts[row]]
    assert len(rows) == 1
    return {index.data.entity_texts[row] for row in index.data.proposition_entity_NE[rows, :].indices}


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
        (["j. smith", "dr. john smith", "john smith"], [(0, 2)]),
        (["dr. j. smith", "john smith", "prof. james smith"], []),
        (["dr. j. smith", "john smith"], [(0, 1)]),
        (["j. smith", "john smith", "john r. smith"], []),
        (["j.-p. o'neill", "j. o'neill", "jean-paul o'neill"], [(1, 2)]),
        (["n. york", "new york", "l. ellery", "lantern of port ellery"], []),
    ],
)
def test_initials_match_a_full_name_only_if_no_other_name_fits(keys: list[str], pairs: list[tuple[int, int]]) -> None:
    assert full_names(keys) == pairs


@given(st.permutations(["j. smith", "john smith", "jane jones", "j. jones", "jack jones", "a. b. lee", "ann beth lee"]))
def test_the_order_of_names_does_not_matter(keys: list[str]) -> None:
    assert {(keys[a], keys[b]) for a, b in full_names(keys)} == {
        ("j. smith", "john smith"),
        ("a. b. lee", "ann beth lee"),
    }


@given(
    st.lists(
        st.builds("{} {}".format, *map(st.sampled_from, (["a.", "a. b.", "ada", "ada bea", "al"], ["lee", "ray"])))
    )
)
def test_full_names_equal_those_of_a_search_through_all_pairs(keys: list[str]) -> None:
    keys = list(dict.fromkeys(keys))
    expected = []
    for row, key in enumerate(keys):
        *initials, surname = key.split()
        fitting = [
            other
            for other, (*given_names, last) in enumerate(name.split() for name in keys)
            if last == surname and "." not in given_names[0] and len(given_names) >= len(initials)
            if all(name[0] == initial[0] for name, initial in zip(given_names, initials, strict=False))
        ]
        if "." in key and len(fitting) == 1:
            expected.append((row, fitting[0]))
    assert full_names(keys) == expected


@pytest.mark.long
def test_the_time_is_linear_in_the_number_of_names() -> None:
    """There are only seven surnames, so that hundreds or thousands of names share each."""

    def prepare(names: int) -> Callable[[], object]:
        keys = [f"{chr(97 + n % 26)}. abcabc{chr(97 + n % 7)}" for n in range(500)]
        keys += [f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}x abcabc{chr(97 + n % 7)}" for n in range(names)]
        return lambda: full_names(keys)

    assert_linear(prepare, 4_000)


def test_an_alias_is_a_mention_of_the_full_name(tmp_path: Path) -> None:
    index = build(tmp_path / "i", LETTER, YARD)
    assert {"j. brandt", "johanna brandt"} <= entities_of(index, "J. Brandt lies")
    assert "j. brandt" not in entities_of(index, "Johanna Brandt until")
    found = retrieve(index, "Where was the writer of The letter at work?", RetrieveSettings(mode="hops", top_k=2))
    assert {passage.item.source for passage in found.passages} == {"letter", "johanna"}


def test_a_second_candidate_removes_the_alias_and_deleting_the_candidate_restores_the_alias(tmp_path: Path) -> None:
    before = load_arrays(build(tmp_path / "i", LETTER, YARD).folder, IndexData)
    both = build(tmp_path / "i", MILL)
    assert entities_of(both, "J. Brandt lies") & {"johanna brandt", "jonas brandt"} == set()
    delete_documents(tmp_path / "i", ["jonas"], lambda spec: HashEncoder())
    assert_same_index(before, load_arrays(tmp_path / "i", IndexData))
    build(tmp_path / "other order", YARD)
    assert_same_index(before, load_arrays(build(tmp_path / "other order", LETTER).folder, IndexData))


def test_a_bare_surname_refers_to_the_person_named_in_its_document(tmp_path: Path) -> None:
    index = build(tmp_path / "i", YARD, MILL)
    assert "johanna brandt" in entities_of(index, "sold the slip")
    two = Document(
        "two", "Two", "The ship was built by Ada Marlow. The sails came from Ben Marlow. Later Marlow died in Tarn."
    )
    assert entities_of(build(tmp_path / "two", two), "Later Marlow died") & {"ada marlow", "ben marlow"} == set()


def test_places_and_single_words_give_no_surnames() -> None:
    assert people_by_surname(["New York", "Great Orrin", "Quill", "Port Ellery", "The Hague", "Salt Row 3"]) == {}
    assert people_by_surname(["Ada Marlow", "ada marlow", "Ada Marlow"]) == {"marlow": "Ada Marlow"}
    assert people_by_surname(["Theresa May", "Battle of Tarn", "Lantern of Ellery"]) == {}


@pytest.mark.parametrize(
    ("rival", "ambiguous"),
    [
        ("Ben Marlow", True),
        ("Dr. Ben Marlow", True),
        ("B. Marlow", True),
        ("A. Marlow", False),
        ("Dr. Ada Marlow", False),
    ],
)
def test_a_surname_is_ambiguous_if_another_person_has_it(rival: str, ambiguous: bool) -> None:
    assert people_by_surname(["Ada Marlow", rival]) == ({} if ambiguous else {"marlow": "Ada Marlow"})


def entities_by_rules(*texts: str, title: str = "The yard") -> list[tuple[str, ...]]:
    document = Document("d", title, "".join(texts))
    starts = [sum(map(len, texts[:place])) for place in range(len(texts))]
    passages = [
        Passage(str(n), "d", title, n, start, start + len(texts[n]), texts[n]) for n, start in enumerate(starts)
    ]
    return [occurrence.entities for occurrences in extract_by_rules(document, passages) for occurrence in occurrences]


def test_a_surname_is_recognised_at_the_start_of_a_sentence_and_in_other_passages() -> None:
    assert entities_by_rules("It was built by Ada Marlow. ", "Marlow sold it.")[1] == ("Marlow", "Ada Marlow")
    assert entities_by_rules("Marlow was a builder.", title="Ada Marlow (builder)") == [("Marlow", "Ada Marlow")]


def test_a_surname_is_ambiguous_if_a_place_has_the_same_name() -> None:
    assert (
        "Ada Marlow"
        not in entities_by_rules("It was built by Ada Marlow. The mill in Marlow burned. Later Marlow slept.")[2]
    )
    assert (
        "Ada Marlow"
        in entities_by_rules("It was built by Ada Marlow. The mill in Marlow's yard burned. Later Marlow slept.")[2]
    )
