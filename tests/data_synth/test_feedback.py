"""Readers' feedback becomes training rows: consent, majorities, and deleted documents and readers."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_synth.dataset.validate import validate_file
from data_synth.feedback import (
    DIFFERENT_PASSAGES,
    DISPUTED,
    EQUAL_ANSWERS,
    EXCERPT_GONE,
    NO_CONSENT,
    NO_COUNTERPART,
    NO_DIFFERENCE,
    PASSAGE_GONE,
    SUPERSEDED,
    import_feedback,
    judge_answers,
    latest_entries,
    net_votes,
)
from data_synth.preferences.hard_negatives import REFUSAL
from graph.answer.context import of_passage
from graph.answer.prompt import NOT_FOUND, answer_messages
from graph.build.build import Edit, edit_index
from graph.errors import UserError
from graph.feedback import (
    Correction,
    Feedback,
    FeedbackContent,
    FeedbackFile,
    GivenAnswer,
    Preference,
    RightPassage,
    Vote,
)
from graph.index.index import Index, open_index
from graph.shared.ids import content_id
from tests.commands import run
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.graph.hashed import build
from train.run.data import read_preferences
from train.selector.selector_data import read_folder

QUESTION = "Who built the Lantern?"


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return build(tmp_path / "index", ISLES)


def entry(content: FeedbackContent, user: str = "reader-1", question: str = QUESTION, consent: bool = True) -> Feedback:
    return Feedback("id", user, "2026-01-02T03:04:05+00:00", consent, question, content)


def store(index: Index, *entries: Feedback) -> FeedbackFile:
    file = FeedbackFile(index.folder, 1 << 30)
    for number, each in enumerate(entries):
        file.add(replace(each, id=str(number)))
    return file


def ids_of(index: Index, *sources: str) -> tuple[str, ...]:
    return tuple(index.passages_of(source)[0].id for source in sources)


def answers(index: Index) -> tuple[GivenAnswer, GivenAnswer]:
    context_ids = ids_of(index, "lantern", "marlow")
    good = GivenAnswer("ms", "the Marlow Yard", "She was built by the yard [1].", context_ids, "hops")
    return good, GivenAnswer("sft", "Quill", "The yard stands in Quill [2].", context_ids, "hops")


def test_a_preference_becomes_a_pair_that_training_reads(index: Index, tmp_path: Path) -> None:
    good, bad = answers(index)
    store(index, entry(Preference(bad, good, "second")))
    summaries = import_feedback(index, tmp_path / "out")
    assert {name: summary.rows for name, summary in summaries.items()} == {"preferences": 1, "relevance": 0}
    (row,) = read_preferences(tmp_path / "out/preferences/train.jsonl")
    excerpts = [of_passage(index.passages_of(source)[0]) for source in ("lantern", "marlow")]
    assert row.prompt == answer_messages(QUESTION, excerpts) and row.context_ids == good.context_ids
    assert row.chosen == "###Reason: She was built by the yard [1]. ###Answer: the Marlow Yard"
    assert row.rejected == "###Reason: The yard stands in Quill [2]. ###Answer: Quill"
    assert (row.reasoner, row.hard_negative) == ("ms", "found worse by readers")
    for name in summaries:
        assert "made by `modegraph data import feedback`" in (tmp_path / "out" / name / "README.md").read_text()
    assert validate_file(tmp_path / "out/preferences/train.jsonl").bad == ()


def test_a_correction_gets_its_reasoning_from_the_passage_that_the_reader_named(index: Index, tmp_path: Path) -> None:
    _, bad = answers(index)
    yard, ada = ids_of(index, "lantern", "ada")
    store(
        index,
        entry(Correction(bad, "the Marlow Yard", passage_ids=(yard,))),
        entry(Correction(bad, "Marlow Yard, Quill"), "reader-2"),
        entry(Correction(bad, "shipwright Ada Marlow", passage_ids=(ada,)), "reader-3"),
        entry(Correction(bad, "the yard", reasoning="By my own reading [1]."), "reader-4"),
    )
    import_feedback(index, tmp_path / "out")
    rows = read_preferences(tmp_path / "out/preferences/train.jsonl")
    assert [row.chosen for row in rows] == [
        "###Reason: She was built in 1911 by the Marlow Yard [1]. ###Answer: the Marlow Yard",
        "###Reason: The Marlow Yard stands in Quill [2]. ###Answer: Marlow Yard, Quill",
        "###Reason: Ada Marlow was a shipwright. ###Answer: shipwright Ada Marlow",
        "###Reason: By my own reading [1]. ###Answer: the yard",
    ]
    assert [row.reasoner for row in rows] == ["rules", "rules", "rules", "a reader"]
    # Of the two documents that readers called right, one was in the context.
    assert {row.gold_in_context for row in rows} == {0.5}


def test_the_right_passage_becomes_relevance_rows_that_training_reads(index: Index, tmp_path: Path) -> None:
    lantern, marlow, tarn = ids_of(index, "lantern", "marlow", "tarn")
    store(index, entry(RightPassage(lantern, (tarn, lantern, marlow))))
    import_feedback(index, tmp_path / "out")
    relevance = read_folder(tmp_path / "out/relevance").rows["train"]
    assert {row.proposition for row in relevance if row.label} == {
        "The Lantern is a ferry of Port Ellery.",
        "Lantern was built in 1911 by the Marlow Yard.",
    }
    others = [row for row in relevance if "The Marlow Yard stands in Quill." in row.proposition]
    assert [(row.label, row.found_by, row.labelled_by) for row in others] == [(0, "own", "passage")]
    assert {row.question for row in relevance} == {QUESTION}


def test_a_question_is_in_the_same_split_of_both_datasets(index: Index, tmp_path: Path) -> None:
    good, bad = answers(index)
    entries = []
    for number in range(30):
        question = f"Who built ferry number {number}?"
        entries += [entry(Preference(good, bad, "first"), question=question)]
        entries += [entry(RightPassage(good.context_ids[number % 2]), question=question)]
    store(index, *entries)
    summaries = import_feedback(index, tmp_path / "out")
    split: dict[str, set[str]] = {}
    for name in ("preferences", "relevance"):
        for file in (tmp_path / "out" / name).glob("*.jsonl"):
            for line in file.read_text().splitlines():
                split.setdefault(json.loads(line)["question_id"], set()).add(file.stem)
    assert len(split) == 30 and all(len(splits) == 1 for splits in split.values())
    assert summaries["preferences"].rows == 30 and summaries["relevance"].rows >= 30


def test_deleted_feedback_is_absent_from_the_next_import(index: Index, tmp_path: Path) -> None:
    good, bad = answers(index)
    file = store(index, entry(Preference(good, bad, "first")), entry(RightPassage(good.context_ids[0]), "reader-2"))
    import_feedback(index, tmp_path / "out")
    file.delete_user("reader-1")
    summaries = import_feedback(index, tmp_path / "out")
    assert summaries["preferences"].rows == 0 and summaries["relevance"].rows > 0
    assert not (tmp_path / "out/preferences/train.jsonl").exists()
    assert (tmp_path / "out/relevance/train.jsonl").exists()
    file.delete_user("reader-2")
    assert [summary.rows for summary in import_feedback(index, tmp_path / "out").values()] == [0, 0]
    assert not list(tmp_path.glob("out/*/*.jsonl"))
    with pytest.raises(UserError, match="no feedback"):
        import_feedback(index, tmp_path / "new")


def test_feedback_about_a_deleted_document_is_dropped(index: Index, tmp_path: Path) -> None:
    good, bad = answers(index)
    store(index, entry(Preference(good, bad, "first")), entry(RightPassage(good.context_ids[1])))
    edit_index(index.folder, lambda: [Edit(delete="marlow")], lambda spec: HashEncoder())
    remaining = open_index(index.folder, lambda spec: HashEncoder())
    summaries = import_feedback(remaining, tmp_path / "out")
    assert summaries["preferences"].drops == {EXCERPT_GONE: 1} and summaries["relevance"].drops == {PASSAGE_GONE: 1}
    assert [summary.rows for summary in summaries.values()] == [0, 0]


def test_a_correction_to_not_in_the_documents_is_a_refusal(index: Index, tmp_path: Path) -> None:
    _, bad = answers(index)
    store(index, entry(Correction(bad, "Not in the documents.")))
    import_feedback(index, tmp_path / "out")
    (row,) = read_preferences(tmp_path / "out/preferences/train.jsonl")
    assert row.chosen == REFUSAL and (row.answers, row.kind) == ((NOT_FOUND,), "unanswerable")
    assert row.rejected == "###Reason: The yard stands in Quill [2]. ###Answer: Quill"


def test_feedback_about_what_a_model_wrote_is_dropped_with_the_reason(index: Index, tmp_path: Path) -> None:
    """The modes global, local and plan put findings, which are not in the index, into the context."""
    good, bad = answers(index)
    context_ids = (content_id("Who built it? The yard."), *good.context_ids)
    pair = [replace(each, context_ids=context_ids, mode="plan") for each in (good, bad)]
    gone = content_id("a deleted passage")
    store(
        index,
        entry(Preference(*pair, "first")),
        entry(Correction(bad, "the Marlow Yard", passage_ids=(gone,)), "reader-2"),
    )
    assert import_feedback(index, tmp_path / "out")["preferences"].drops == {EXCERPT_GONE: 1, PASSAGE_GONE: 1}


UP, DOWN = GivenAnswer("m", "up", "so"), GivenAnswer("m", "down", "so")
CASES: list[tuple[str, Sequence[Feedback], Sequence[tuple[str, str]], Sequence[str]]] = [
    ("votes", [entry(Vote(UP, "up")), entry(Vote(DOWN, "down"), "b")], [("up", "down")], []),
    ("one vote", [entry(Vote(UP, "up"))], [], [NO_COUNTERPART]),
    ("two upvotes", [entry(Vote(UP, "up")), entry(Vote(DOWN, "up"))], [], [NO_COUNTERPART, NO_COUNTERPART]),
    ("outvoted", [entry(Vote(UP, each), u) for u, each in zip("abc", ("up", "down", "down"), strict=True)], [], [NO_COUNTERPART] * 3),
    ("other question", [entry(Vote(UP, "up")), entry(Vote(DOWN, "down"), question="?")], [], [NO_COUNTERPART, NO_COUNTERPART]),
    ("same question", [entry(Vote(UP, "up")), entry(Vote(DOWN, "down"), question="WHO built  the Lantern?")], [("up", "down")], []),
    ("neither", [entry(Preference(UP, DOWN, "neither"))], [], [NO_DIFFERENCE]),
    ("same text", [entry(Preference(UP, UP, "first"))], [], [EQUAL_ANSWERS]),
    ("other passages", [entry(Preference(UP, GivenAnswer("m", "x", "", ("a" * 32,)), "first"))], [], [DIFFERENT_PASSAGES]),
    ("disputed", [entry(Preference(UP, DOWN, "first")), entry(Preference(UP, DOWN, "second"), "b")], [], [DISPUTED]),
    ("majority", [entry(Preference(UP, DOWN, each), u) for u, each in zip("abc", ("first", "second", "second"), strict=True)], [("down", "up")], []),
    ("votes and preference", [entry(Vote(UP, "up")), entry(Vote(DOWN, "down")), entry(Preference(UP, DOWN, "second"), "b")], [], [DISPUTED]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "entries", "pairs", "dropped"), CASES, ids=[case[0] for case in CASES])
def test_votes_and_preferences_of_readers_are_combined_into_pairs(
    name: str, entries: Any, pairs: Any, dropped: Any
) -> None:
    better, unpaired = judge_answers(entries)
    assert [(each.chosen.text, each.rejected.text) for each in better] == pairs
    assert [each.why for each in unpaired] == dropped


def test_a_readers_last_opinion_counts_unless_consent_is_withdrawn() -> None:
    contents = [Vote(UP, "up"), Vote(UP, "down"), Preference(UP, DOWN, "first"), Preference(DOWN, UP, "first")]
    latest, dropped = latest_entries([entry(each) for each in contents])
    assert [each.content for each in latest] == [contents[1], contents[3]]
    assert [each.why for each in dropped] == [SUPERSEDED] * 2
    latest, dropped = latest_entries([entry(contents[0]), entry(contents[0], "b"), entry(contents[1], consent=False)])
    assert [each.user for each in latest] == ["b"] and [each.why for each in dropped] == [SUPERSEDED, NO_CONSENT]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["up", "down"]), st.sampled_from("xyz"))))
def test_only_the_last_vote_of_each_reader_on_an_answer_counts(votes: list[tuple[str, Any, str]]) -> None:
    """Compared with a slow reference: the last vote of each reader on each answer."""
    entries = [entry(Vote(GivenAnswer("m", text), rating), user) for user, rating, text in votes]
    latest, _ = latest_entries(entries)
    last = {(user, text): rating for user, rating, text in votes}
    net = {
        text: sum(1 if rating == "up" else -1 for (_, of), rating in last.items() if of == text)
        for text in {text for _, text in last}
    }
    counted = net_votes(each.content for each in latest if isinstance(each.content, Vote))
    assert {str(key[0]): value for key, value in counted.items()} == net


def test_the_command_prints_the_summaries(index: Index, tmp_path: Path, open_hashed: None) -> None:
    good, bad = answers(index)
    store(index, entry(Preference(good, bad, "first")), entry(Vote(good, "up"), "reader-2", consent=False))
    words = ["data", "import", "feedback", str(index.folder), "--out", str(tmp_path / "out")]
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "1 rows in" in done.output and "no consent to training 1" in done.output
    summaries = json.loads(run(*words, "--json").stdout)
    assert {name: summaries[name]["rows"] for name in ("preferences", "relevance")} == {
        "preferences": 1,
        "relevance": 0,
    }
    FeedbackFile(index.folder, 1 << 30).delete_user("reader-1")
    assert run(*words).exit_code == 1
