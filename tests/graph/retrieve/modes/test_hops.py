"""`hops` reaches passages that a question does not name, explains how, and ranks the passage of a single-hop question first."""

import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity
from graph.retrieve.parts import passage_scores
from graph.retrieve.parts.mentions import keywords_of, named_documents
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.parts.ranking import best_in_passage, expand_rows
from graph.retrieve.retrieve import retrieve
from graph.types import Document
from tests.graph.hashed import build
from tests.growth import assert_linear

HOPS = RetrieveSettings(mode="hops", top_k=5, selector="none")


@given(st.integers(0, 5000), st.lists(st.integers(0, 7), max_size=6))
def test_expand_rows_equals_a_slow_reference(seed: int, rows: list[int]) -> None:
    block = sp.csr_array((np.random.default_rng(seed).random((8, 5)) < 0.4).astype(np.float32))
    expected = [(place, int(column)) for place, row in enumerate(rows) for column in block[[row], :].indices]
    position_X, column_X = expand_rows(block, np.array(rows, np.int64))
    assert list(zip(position_X.tolist(), column_X.tolist(), strict=True)) == expected


def test_a_passage_has_the_score_of_its_best_proposition_or_its_own_if_it_has_none() -> None:
    block = sp.csr_array(np.array([[1, 1, 0], [0, 0, 0], [0, 2, 1], [0, 0, 0]], np.float32))
    best = best_in_passage(np.array([0.1, 0.5, 0.9], np.float32), block, np.array([9, 8, 7, 6], np.float32))
    assert best == pytest.approx([0.5, 8, 0.9, 6])


def test_a_question_names_documents_by_title_and_by_short_form(isles: Index) -> None:
    sources = isles.sources()

    def names_in(question: str) -> list[tuple[str, str]]:
        return [(name, sources[document]) for name, document in named_documents(isles, question)]

    assert names_in("Is the Lantern older than Ada Marlow?") == [("Ada Marlow", "ada"), ("Lantern", "lantern")]
    assert names_in("Who baked kelp bread?") == [("kelp bread", "bread")]
    assert names_in("Tarn is where?") == [], "a capitalised first word alone should not count as a name"
    assert names_in("Which lantern is it?") == [], "a single lower-case word should not count as a name"
    assert names_in("") == []


@pytest.mark.parametrize("quoted", ["‘Lantern’", "«Lantern»", "„Lantern“", "*Lantern*", "`Lantern`", "“Lantern”…"])
def test_a_name_in_quotes_is_recognised(isles: Index, quoted: str) -> None:
    question = f"Who built {quoted}"
    assert [name for name, _ in named_documents(isles, question)] == ["Lantern"]
    assert [isles.data.entity_texts[row] for row in keywords_of(isles, question)] == ["lantern"]


def test_a_name_is_recognised_with_decomposed_accents(tmp_path: Path) -> None:
    names = ["Café Zoë", unicodedata.normalize("NFD", "Île Dumée")]
    index = build(tmp_path / "accents", [Document(name, name, f"The {name} is old.") for name in names])
    question = unicodedata.normalize("NFD", "Is the Café Zoë on the Île Dumée?")
    assert sorted(index.sources()[document] for _, document in named_documents(index, question)) == sorted(names)
    assert "café zoë" in {index.data.entity_texts[row] for row in keywords_of(index, question)}


LONG_TITLE = "Effects of kelp bread on the sleep of old shipwrights of Tarn (a study)"
TITLES = (
    *("How do I reset my password?", "Mamma Mia!", "“Heroes”", "__init__", "[REC]", "Où est le phare ?", LONG_TITLE),
    *("Lantern (ferry)", "Ellery", "Skopelos", "AC/DC", "D'Arcy", "Tarn", "Marlow", "Olive oil", "The Who", "Compare"),
    *(
        "令和6年度事業報告書",
        "令和",
        "JR東日本",
        "กรุงเทพมหานคร",
        "ソーシャルネットワーキングサービス",
        "けいおん！",
        "東京 2020",
        "부산",
    ),
    unicodedata.normalize("NFD", "ガルーダ航空"),
)


@pytest.fixture(scope="module")
def titled(tmp_path_factory: pytest.TempPathFactory) -> Index:
    documents = [Document(str(number), title, f"{title} 는 1911.") for number, title in enumerate(TITLES)]
    documents.append(Document("korean", "", "그는 부산에서 등대를 보았다. 그는 부산에서 살았다. 등대는 높다."))
    return build(tmp_path_factory.mktemp("titled") / "index", documents)


@pytest.mark.parametrize(
    ("question", "titles"),
    [
        ("How do I reset my password?", ["How do I reset my password?"]),
        ("how do I reset my password", ["How do I reset my password?"]),
        ("Was Mamma Mia! a musical?", ["Mamma Mia!"]),
        ("Who sang in Mamma Mia?", ["Mamma Mia!"]),
        ("Is “Heroes” an album?", ["“Heroes”"]),
        ("What does `__init__` do?", ["__init__"]),
        ("What does the init do?", []),
        ("Is [REC] a film?", ["[REC]"]),
        ("Où est le phare ?", ["Où est le phare ?"]),
        ("où est le phare?", ["Où est le phare ?"]),
        (f"Who wrote {LONG_TITLE}?", [LONG_TITLE]),
        (f"Who wrote “The {LONG_TITLE.casefold()}”?", [LONG_TITLE]),
        ("Lantern (ferry) was built when?", ["Lantern (ferry)"]),
        ("Lantern was built when?", []),
        ("je vois le feu d'Ellery", ["Ellery"]),
        ("L’Ellery est où?", ["Ellery"]),
        ("Is it (d'Ellery)?", ["Ellery"]),
        ("l'huile d'olive oil", ["Olive oil"]),
        ("the rock—Ellery—at night", ["Ellery"]),
        ("which is larger, Skopelos/Ellery?", ["Skopelos", "Ellery"]),
        ("Who plays in AC/DC?", ["AC/DC"]),
        ("Who is D'Arcy?", ["D'Arcy"]),
        ("I like ferries. Tarn is where?", ["Tarn"]),
        ("I like ferries! “Tarn” is where?", ["Tarn"]),
        ("I like ferries\nTarn is where?", ["Tarn"]),
        ("Which is larger? Skopelos or Tarn?", ["Skopelos", "Tarn"]),
        ("Which of these films is older?\nMarlow\n- Ellery", ["Marlow", "Ellery"]),
        ("I like the ferry. Who built it? Who's that?\nWho sank it?\n- Who sold it? Compare both.", []),
        ("Are The Who and Compare alike?", ["The Who", "Compare"]),
        ("Did Dr. Marlow see St. Tarn?", ["Marlow", "Tarn"]),
        ("令和6年度事業報告書の収支は?", ["令和6年度事業報告書"]),
        ("令和の駅、JR東日本の駅", ["JR東日本", "令和"]),
        ("กรุงเทพมหานครอยู่ที่ไหน", ["กรุงเทพมหานคร"]),
        ("ソーシャルネットワーキングサービスとは何ですか", ["ソーシャルネットワーキングサービス"]),
        ("けいおん！の歌", ["けいおん！"]),
        ("東京 2020の会場は", ["東京 2020"]),
        ("東京 20201の会場は", []),
        ("AJR東日本とは", []),
        ("ガルーダ航空はどこへ飛ぶか", [TITLES[-1]]),
    ],
)
def test_a_question_names_every_document_whose_title_it_contains(
    titled: Index, question: str, titles: list[str]
) -> None:
    named = [titled.data.document_titles[document] for _, document in named_documents(titled, question)]
    assert named == titles


@pytest.mark.parametrize(
    ("question", "keywords"),
    [
        ("부산에서 등대를 세운 사람은 누구인가?", {"부산", "등대"}),
        ("ソーシャルネットワーキングサービスとは", {"ソーシャルネットワーキングサービス"}),
        ("令和6年度事業報告書の収支は?", {"令和6年度事業報告書", "令和"}),
        ("the rock—Ellery—d'Ellery/Skopelos", {"ellery", "skopelos"}),
    ],
)
def test_names_are_keywords_with_affixes_of_any_length_and_joined_to_other_words(
    titled: Index, question: str, keywords: set[str]
) -> None:
    assert keywords <= {titled.data.entity_texts[row] for row in keywords_of(titled, question)}


def test_a_name_contains_single_spaces_however_the_question_writes_it(titled: Index) -> None:
    assert [name for name, _ in named_documents(titled, "Who is in “Olive\n  oil”?")] == ["Olive oil"]


@pytest.mark.parametrize("part", ["a/b—", "Tarn? "])
@pytest.mark.parametrize("look_up", [keywords_of, named_documents])
def test_the_time_to_find_names_grows_in_proportion_to_the_question(
    titled: Index, look_up: Callable[[Index, str], object], part: str
) -> None:
    assert_linear(lambda size: lambda: look_up(titled, part * size), 10)


def test_two_hops_reach_passages_that_the_question_does_not_name(isles: Index) -> None:
    question = "In which village was the founder of the yard that built the Lantern born?"
    found = retrieve(isles, question, HOPS)
    sources = [passage.item.source for passage in found.passages]
    assert sources[0] == "lantern" and "marlow" in sources[:3] and "ada" in sources[:4]
    path = found.paths[sources.index("marlow")]
    assert path == (
        "“Lantern was built in 1911 by the Marlow Yard.”",
        "mentions “Marlow Yard”",
        "and this is the document of that name",
        "shares with the question: “yard”",
    )
    assert found.paths[0][0] == "the question names “Lantern”"
    assert len(found.paths) == len(found.passages)


def test_the_passage_of_a_single_hop_question_is_ranked_first(isles: Index) -> None:
    found = retrieve(isles, "How long does the bread keep?", RetrieveSettings(mode="hops", top_k=5))
    assert found.passages[0].item.source == "bread"


def test_results_are_repeatable_distinct_and_sorted_by_score(isles: Index) -> None:
    found = retrieve(isles, "Who founded the Marlow Yard?", HOPS)
    scores = [passage.score for passage in found.passages]
    assert scores == sorted(scores, reverse=True) and len({p.item.id for p in found.passages}) == len(scores)
    again = retrieve(isles, "Who founded the Marlow Yard?", HOPS)
    assert found.passages == again.passages and found.paths == again.paths


@pytest.mark.parametrize("scanned", [1, 2, 5])
def test_a_large_index_is_scanned_in_part_and_still_follows_links(
    isles: Index, monkeypatch: pytest.MonkeyPatch, scanned: int
) -> None:
    question = "Who founded the yard that built the ferry Lantern?"
    whole = retrieve(isles, question, RetrieveSettings(mode="hops", top_k=3))
    monkeypatch.setattr(passage_scores, "MAX_SCANNED_PROPOSITIONS", 0)
    monkeypatch.setattr(passage_scores, "SCANNED_PASSAGES", scanned)
    query_D = isles.encode_queries([question])[0]
    scores_N = passage_scores.score_propositions(isles, passage_scores.score_passages(isles, query_D), query_D)
    exact_N = normalised_similarity(isles, isles.data.proposition_vectors_ND @ query_D)
    scored = scores_N != passage_scores.NOT_SCORED
    assert (
        np.allclose(scores_N[scored], exact_N[scored], atol=1e-6) and scored.any() and (scored.all() == (scanned == 5))
    )
    part = retrieve(isles, question, RetrieveSettings(mode="hops", top_k=3))
    assert [found.item.id for found in part.passages[:2]] == [found.item.id for found in whole.passages[:2]]
    if scanned == 5:
        assert part.passages == whole.passages
