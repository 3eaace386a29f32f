"""Filters: the meaning of conditions, and no part of a filtered-out document in the results of any mode (docs/developers/behaviours.md, 23)."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from graph.build.build import build_index
from graph.build.estimate import plan_build
from graph.build.lifecycle import (
    compact_index,
    delete_documents,
    index_status,
    quarantine_warning,
    repair_index,
    resume_build,
    retry_failed,
    verify_index,
)
from graph.build.stores import read_settings
from graph.errors import UserError
from graph.index.filters import parse_condition
from graph.index.index import Index, open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import MODES
from graph.store.index_settings import IndexSettings
from graph.types import Document
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.growth import assert_linear

YEARS = {"lantern": 1911, "marlow": 1880, "ada": 1931, "bread": 2001}


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("year>=1990", 1990, True),
        ("year>1990", 1990, False),
        ("year=1990", 1990.0, True),
        ("year=1990", "1990.0", False),
        ("id=7", "007", False),
        ("id!=7", "007", True),
        ("id=1e3", "1000", False),
        ("id=1_0", "10", False),
        ("id=1_0", 10, False),
        ("id=9007199254740993", 9007199254740992, False),
        ("id=19*", 1990, True),
        ("size>=.5", 0.5, True),
        ("size=1e-05", 1e-5, True),
        ("size<1e999999999999999999999", "2", False),
        ("size>=9", float("nan"), False),
        ("size!=9", float("nan"), True),
        ("level<=2", "10", False),
        ("when<2020-05", "2020-04-30", True),
        ("lang=EN", "en", True),
        ("source=CAF\u00c9.md", "cafe\u0301.md", True),
        ("source=cafe\u0301.md", "caf\u00e9.md", True),
        ("source=caf?.md", "cafe\u0301.md", True),
        ("lang!=en", "de", True),
        ("lang!=en", None, True),
        ("lang=en", None, False),
        ("source=reports/*", "reports/2020/a.md", True),
        ("source=reports/?.md", "reports/a.md", True),
        ("source=reports/[?].md", "reports/a.md", False),
        ("source=reports/[?].md", "reports/?.md", True),
        ("tag=sea", ["ship", "sea"], True),
        ("tag!=sea", ["ship", "sea"], False),
        ("open=true", True, True),
        ("वर्ष=1990", 1990, True),
        ("ปี = 1", 1, True),
        ("page count>=3", 3, True),
        ("dc:title!=x", "y", True),
        ("so far!?=no", "no", True),
    ],
)
def test_a_condition_compares_numbers_as_numbers_and_text_as_text(text: str, value: object, holds: bool) -> None:
    assert parse_condition(text).holds(value) is holds


def test_bad_conditions_are_reported(index_with_years: Index) -> None:
    with pytest.raises(UserError, match="Did you mean 'year'"):
        retrieve(index_with_years, "x", _settings("dense", "yaer=1911"))
    with pytest.raises(
        UserError, match=r"filter on 'pages': no document has it\. Expected a key that some document has\. Known keys: "
    ):
        retrieve(index_with_years, "x", _settings("dense", "pages=3"))
    with pytest.raises(UserError, match="year>3000: none of 5 documents meets it"):
        retrieve(index_with_years, "x", _settings("dense", "year>3000"))
    for text in ("recent", "!=x", "=x", " <3", "year=", '"team"!=secret', "'team'!=secret", "'team != secret'"):
        with pytest.raises(UserError, match="key=value"):
            parse_condition(text)


def test_a_key_may_contain_spaces_and_marks_of_any_script() -> None:
    keys = ("वर्ष", "ปี", "page count", "dc:title", "so far!", "a|b")
    assert tuple(parse_condition(f"{key}>=3").key for key in keys) == keys


def test_the_time_to_parse_a_condition_grows_in_proportion_to_its_blanks() -> None:
    assert_linear(lambda size: partial(parse_condition, f"a{' ' * size}b{' ' * size}= c{' ' * size}d"), 2_000)


@pytest.fixture(scope="module")
def index_with_years(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder: Path = tmp_path_factory.mktemp("index_with_years") / "index"
    documents = [replace(each, metadata={"year": YEARS[each.source]} if each.source in YEARS else {}) for each in ISLES]
    build_index(folder, documents, IndexSettings(), lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


@pytest.mark.parametrize("mode", MODES)
def test_no_mode_returns_anything_from_a_document_that_the_filter_excludes(index_with_years: Index, mode: str) -> None:
    allowed = {source for source, year in YEARS.items() if year >= 1900}
    question = "Who founded the Marlow Yard that built the Lantern?"
    unfiltered = retrieve(index_with_years, question, _settings(mode))
    assert not {found.item.source for found in unfiltered.passages} <= allowed, (
        "without the filter, other documents should be found"
    )
    found = retrieve(index_with_years, question, _settings(mode, "year>=1900"))
    assert found.passages and {each.item.source for each in found.passages} <= allowed
    passages = {each.id for source in allowed for each in index_with_years.passages_of(source)}
    assert all({span.source for span in each.item.spans} <= allowed for each in found.propositions)
    assert all(set(each.item.members) <= passages for each in found.summaries)
    text = " ".join(step for path in found.paths for step in path)
    assert "founded in 1880" not in text


def test_a_filter_that_all_documents_meet_changes_nothing(index_with_years: Index) -> None:
    for mode in MODES:
        whole = retrieve(index_with_years, "When was the Lantern built?", _settings(mode))
        same = retrieve(index_with_years, "When was the Lantern built?", _settings(mode, "source=*"))
        assert (whole.passages, whole.propositions, whole.summaries) == (
            same.passages,
            same.propositions,
            same.summaries,
        )


def test_a_filtered_index_has_the_documents_and_propositions_of_an_index_of_the_matching_documents(
    index_with_years: Index, tmp_path: Path
) -> None:
    """This also holds for titles, passages, occurrences and vectors; entities and terms keep the rows that they have in the whole index."""
    part = index_with_years.where((parse_condition("year>=1900"),)).data
    documents = [
        replace(each, metadata={"year": YEARS[each.source]}) for each in ISLES if YEARS.get(each.source, 0) >= 1900
    ]
    build_index(tmp_path / "index", documents, IndexSettings(), lambda spec: HashEncoder())
    alone = open_index(tmp_path / "index", lambda spec: HashEncoder()).data
    for field in ("document_sources", "document_metadata", "title_keys", "passage_ids", "proposition_ids"):
        ours, theirs = getattr(part, field), getattr(alone, field)
        assert [ours[row] for row in range(len(ours))] == [theirs[row] for row in range(len(theirs))], field
    columns = ("title_document_T", "passage_document_P", "occurrence_proposition_M", "occurrence_passage_M")
    for field in (*columns, "passage_vectors_PD", "proposition_vectors_ND"):
        assert np.array_equal(getattr(part, field), getattr(alone, field)), field
    for field in ("passage_next_PP", "passage_proposition_PN"):
        assert np.array_equal(getattr(part, field).toarray(), getattr(alone, field).toarray()), field


def _settings(mode: str, *where: str) -> RetrieveSettings:
    return RetrieveSettings(mode=mode, top_k=5, where=where)  # type: ignore[arg-type]


def test_the_cache_of_filtered_indexes_is_bounded_by_bytes(
    index_with_years: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = replace(index_with_years)
    sources = [f"source={source}" for source in index.sources()]
    parts = [index.where(_settings("dense", source).conditions) for source in sources]
    assert index.where(_settings("dense", sources[0]).conditions) is parts[0], "the filtered index should be cached"
    retrieve(index, "When was the Lantern built?", _settings("paths", sources[0]))
    one = parts[0].extra_bytes
    monkeypatch.setattr("graph.index.index.MAX_RESTRICTED_BYTES", one)
    assert index.where(_settings("dense", sources[0]).conditions) is parts[0]
    assert list(index._restricted.values()) == [parts[0]], (
        "the other filtered indexes should be evicted, but not the one in use"
    )
    monkeypatch.setattr("graph.index.index.MAX_RESTRICTED_BYTES", one - 1)
    assert index.where(_settings("dense", sources[0]).conditions) is parts[0] and not index._restricted


def test_a_filtered_index_shares_the_memory_of_contiguous_rows_and_counts_its_other_bytes(
    index_with_years: Index,
) -> None:
    index = replace(index_with_years)
    whole = index.where(_settings("dense", "source=*").conditions)
    assert whole.data is index.data and whole.extra_bytes == 0
    part = index.where(_settings("dense", "source=lantern").conditions)
    assert np.shares_memory(part.data.passage_vectors_PD, index.data.passage_vectors_PD)
    assert np.shares_memory(part.data.passage_texts.data, index.data.passage_texts.data)
    before = part.extra_bytes
    assert before >= part.data.proposition_vectors_ND.nbytes
    assert part.bipartite_chain.pull_VV.nnz and part.extra_bytes > before
    before = part.extra_bytes
    (everywhere, *_) = np.flatnonzero(np.diff(part.data.term_count_WP.indptr) == len(part.data.passage_ids)).tolist()
    scores_P = part.term_scores.sum([everywhere, everywhere])
    assert scores_P.all() and part.extra_bytes == before + scores_P.nbytes


def test_the_copies_in_a_filtered_index_are_measured_once(
    index_with_years: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = replace(index_with_years)
    parts = [index.where(_settings("dense", f"source={source}").conditions) for source in index.sources()]
    monkeypatch.setattr("graph.index.index.unshared_arrays", None)
    assert [index.where(_settings("dense", f"source={source}").conditions) for source in index.sources()] == parts


def test_a_folder_may_be_given_as_a_string(tmp_path: Path) -> None:
    folder = str(tmp_path / "index")
    encoder = HashEncoder()
    build_index(folder, ISLES, IndexSettings(), lambda spec: encoder)
    assert open_index(folder, lambda spec: encoder).folder == tmp_path / "index"
    assert index_status(folder).rows["documents"] == len(ISLES) and verify_index(folder) == []
    assert plan_build(folder, ISLES, IndexSettings(), lambda spec: encoder).unchanged == len(ISLES)
    assert read_settings(folder) == IndexSettings() and quarantine_warning(folder) == ""
    assert repair_index(folder, lambda spec: encoder) == [] and compact_index(folder, lambda spec: encoder) >= 0
    resume_build(folder, lambda spec: encoder)
    assert retry_failed(folder, lambda spec: encoder) == 0
    delete_documents(folder, ["tarn"], lambda spec: encoder)
    assert len(open_index(folder).sources()) == len(ISLES) - 1


def test_a_reader_of_some_documents_sees_no_full_name_that_only_hidden_documents_contain(tmp_path: Path) -> None:
    def entities_of(*own: str) -> tuple[set[str], set[str]]:
        """The entities that a reader sees in an index that also contains a hidden document: all, and those of the proposition about the ferry."""
        texts = {
            "ferry": "In 1911 the yard of J. Marlow built the ferry Lantern.",
            **dict(zip("ab", own, strict=False)),
        }
        documents = [Document(source, "", text, {"team": "all"}) for source, text in texts.items()]
        hidden = Document("hidden", "", "In 1912 Jacob Marlow was dismissed.", {"team": "hr"})
        folder = tmp_path / str(len(own))
        build_index(folder, [*documents, hidden], IndexSettings(), lambda spec: HashEncoder())
        visible = open_index(folder, lambda spec: HashEncoder()).only((parse_condition("team=all"),))
        (row,) = (row for row, text in enumerate(visible.data.proposition_texts) if "ferry" in text)
        return set(visible.data.entity_texts), {name.casefold() for name in visible.proposition(row).entities}

    assert entities_of() == ({"j. marlow", "lantern"}, {"j. marlow", "lantern"})
    everyone = {"j. marlow", "jacob marlow", "lantern"}
    assert entities_of("Later the owner Jacob Marlow sold it.") == (everyone, everyone)
