"""The questions for tuning: the two parts share no document and no sentence, and corpora that are too small or unsuitable are refused with a remedy."""

import json
from pathlib import Path
from typing import Any

import pytest

import modegraph as mg
from data_synth.questions.by_model import ANOTHER_ANSWER, UNUSABLE
from data_synth.questions.by_rules import template_questions
from data_synth.rows import Dropped
from graph.shared.jsonl import write_jsonl
from graph.types import CompletionRequest
from modegraph.tuning.questions import (
    BOTH_PARTS,
    NO_ANSWER,
    NO_PASSAGE,
    NOT_FOUND,
    SHARED_FACT,
    SplitQuestions,
    split_questions,
    teacher_rows,
)
from modegraph.tuning.settings import TuneSettings
from tests.corpora import guild_documents
from tests.fakes import ScriptedModel
from tests.modegraph.tuning.conftest import DOCUMENTS, QUESTIONS


def split(
    folder: Path, documents: list[mg.Document], rows: list[dict[str, Any]] | None = None, **changes: Any
) -> SplitQuestions:
    settings: dict[str, Any] = {"min_test_questions": 1, "test_share": 0.4, **changes}
    if rows is not None:
        write_jsonl(folder / "questions.jsonl", rows)
        settings["questions"] = str(folder / "questions.jsonl")
    return split_questions(mg.index(documents, folder / "index").current(), TuneSettings(**settings))


@pytest.mark.long
def test_no_document_and_no_sentence_is_in_both_parts(tmp_path: Path) -> None:
    found = split(tmp_path, guild_documents(), min_test_questions=15)
    assert found.count("test") >= 15 and found.count("train") > found.count("test")
    sources = {
        part: {s for row in found.rows if row["split"] == part for s in row["gold_ids"]} for part in ("train", "test")
    }
    assert sources["train"] and not sources["train"] & sources["test"]
    assert all(found.documents[source] == part for part, named in sources.items() for source in named)
    quotes = {
        part: {q["quote"] for row in found.rows if row["split"] == part for q in row["evidence"]} for part in sources
    }
    texts = " ".join(each.text for each in guild_documents() if found.documents[each.source] == "train")
    assert not any(quote in texts for quote in quotes["test"])
    assert {row["type"] for row in found.rows} >= {"single", "unanswerable"}
    assert split(tmp_path, guild_documents(), min_test_questions=15) == found, (
        "the same seed should give the same parts"
    )
    assert split(tmp_path, guild_documents(), min_test_questions=15, seed=1).documents != found.documents


def test_copies_of_a_document_are_in_one_part(tmp_path: Path) -> None:
    copies = [mg.Document(f"copy-{each.source}", each.title, each.text) for each in DOCUMENTS]
    found = split(tmp_path, [*DOCUMENTS, *copies], QUESTIONS)
    assert all(found.documents[f"copy-{each.source}"] == found.documents[each.source] for each in DOCUMENTS)
    assert set(found.documents.values()) == {"train", "test"} and not found.left_out


def test_a_sentence_that_is_in_both_parts_is_not_tested(tmp_path: Path) -> None:
    shared = "All ferries sail from the pier of Quill."
    documents = [mg.Document(each.source, each.title, f"{each.text} {shared}") for each in DOCUMENTS]
    rows = [
        {
            "id": f"pier-{n}",
            "question": f"Where does the ship {n} sail from?",
            "answers": ["the pier of Quill"],
            "gold_ids": [each.source],
            "evidence": [{"id": each.source, "quote": shared}],
        }
        for n, each in enumerate(documents)
    ]
    found = split(tmp_path, documents, [*QUESTIONS, *rows])
    assert found.left_out == {SHARED_FACT: sum(part == "test" for part in found.documents.values())}
    assert not any(row["id"].startswith("pier") for row in found.rows if row["split"] == "test")


@pytest.mark.long
def test_a_question_asked_of_each_document_is_tested_unless_its_answer_is_trained_on(tmp_path: Path) -> None:
    years = ["1901", "1902", "1903", "1903"]
    documents = [
        mg.Document(f"form-{n}", f"Form {n}", f"The ship {n} was built in {year}.") for n, year in enumerate(years)
    ]
    rows = [
        {"id": f"q{n}", "question": "When was the ship built?", "answers": [year], "gold_ids": [f"form-{n}"]}
        for n, year in enumerate(years)
    ]
    for seed in range(8):
        (tmp_path / str(seed)).mkdir()
        found = split(tmp_path / str(seed), documents, rows, test_share=0.5, seed=seed)
        trained = {year for n, year in enumerate(years) if found.documents[f"form-{n}"] == "train"}
        tested = {
            f"q{n}" for n, year in enumerate(years) if found.documents[f"form-{n}"] == "test" and year not in trained
        }
        assert {row["id"] for row in found.rows if row["split"] == "test"} == tested


def test_a_teachers_questions_go_to_the_part_of_their_document_if_the_judge_agrees(tmp_path: Path) -> None:
    answers: dict[str, str] = {}

    def ask(request: CompletionRequest) -> str:
        """The last two words of the sentence are the answer; the others are the question."""
        words = json.loads(request.messages[1].content.rpartition("\nSentence: ")[2]).rstrip(".").split()
        answer, question = " ".join(words[-2:]), f"{' '.join(words[:-2])} what?"
        answers[question] = answer if len(question) % 2 else "nobody at all"
        return json.dumps({"answer": answer, "question": question})

    def answer(request: CompletionRequest) -> str:
        return next(each for question, each in answers.items() if question in request.messages[1].content)

    index = mg.index(guild_documents(), tmp_path / "index").current()
    settings = TuneSettings(min_test_questions=1, test_share=0.4)
    rows = teacher_rows(index, settings, ScriptedModel(ask), ScriptedModel(answer), 60)
    contradicted = [row for row in rows if isinstance(row, Dropped) and row.why == ANOTHER_ANSWER]
    assert contradicted and any(not isinstance(row, Dropped) for row in rows)
    found = split_questions(index, settings, rows)
    by_teacher = [row for row in found.rows if row["writer"] == "scripted"]
    assert by_teacher and found.left_out[ANOTHER_ANSWER] == len(contradicted)
    assert all(row["split"] == found.documents[row["gold_ids"][0]] for row in by_teacher)
    assert any(row["writer"] != "scripted" for row in found.rows), "questions made by rules should be there too"
    assert teacher_rows(index, settings, ScriptedModel(ask), ScriptedModel(answer), 0) == [], (
        "without time there should be no questions"
    )


def test_a_teacher_without_usable_questions_leaves_those_made_by_rules(tmp_path: Path) -> None:
    index = mg.index(guild_documents(), tmp_path / "index").current()
    settings = TuneSettings(min_test_questions=1, test_share=0.4)
    mute = ScriptedModel(lambda request: "I cannot do that.")
    rows = teacher_rows(index, settings, mute, mute, 60)
    assert rows and {row.why for row in rows if isinstance(row, Dropped)} == {UNUSABLE}
    found = split_questions(index, settings, rows)
    assert found.count("test") and found.left_out[UNUSABLE] == len(rows)


def test_the_users_questions_are_located_and_unusable_ones_are_counted(tmp_path: Path) -> None:
    bare = [{key: row[key] for key in ("id", "question", "answers")} for row in QUESTIONS]
    unusable = [
        {"id": "none", "question": "Who painted the Heron?"},
        {"id": "nowhere", "question": "Who painted the Petrel?", "answers": ["Ida Corrow"]},
        {"id": "elsewhere", "question": "Who?", "answers": ["Ida Corrow"], "gold_ids": ["ship-1"]},
        {"id": "absent", "question": "Who painted the Ondine?", "answers": [], "type": "unanswerable"},
        {
            "id": "every",
            "question": "When were all built?",
            "answers": ["1911"],
            "gold_ids": [each.source for each in DOCUMENTS],
        },
    ]
    near = [
        {
            "id": f"near-{n}",
            "question": f"Who painted the ship {n}?",
            "type": "unanswerable",
            "near": [{"id": each.source, "quote": each.text}],
        }
        for n, each in enumerate(DOCUMENTS)
    ]
    found = split(tmp_path, DOCUMENTS, [*bare, *unusable, *near])
    assert found.left_out == {NO_ANSWER: 1, NOT_FOUND: 1, NO_PASSAGE: 1, BOTH_PARTS: 1}
    rows = {row["id"]: row for row in found.rows}
    assert len(rows) == len(bare) + 1 + len(near) and rows["absent"]["split"] == "test"
    assert all(rows[f"near-{n}"]["split"] == found.documents[each.source] for n, each in enumerate(DOCUMENTS))
    assert rows["q0-0"]["gold_ids"] == ["ship-0"]


def test_evidence_names_the_document_of_a_question(tmp_path: Path) -> None:
    """The gold document is the one with the evidence, even if retrieval finds a document of the other part first."""
    quotes = [{"id": row["gold_ids"][0], "quote": DOCUMENTS[int(row["gold_ids"][0][5:])].text} for row in QUESTIONS]
    bare = [
        {"id": row["id"], "question": "When was the ferry built?", "answers": row["answers"], "evidence": [quote]}
        for row, quote in zip(QUESTIONS, quotes, strict=True)
    ]
    found = split(tmp_path, DOCUMENTS, [row | {"question": f"{row['id']}: {row['question']}"} for row in bare])
    assert len(found.rows) == len(bare)
    for row in found.rows:
        assert row["gold_ids"] == [row["evidence"][0]["id"]] and row["split"] == found.documents[row["gold_ids"][0]]


@pytest.mark.long
def test_no_two_questions_have_the_same_id(tmp_path: Path) -> None:
    """For documents that differ only in names, the generator invents some names more than once."""
    bridges = ("Dunlin", "Heron", "Petrel", "Curlew", "Avocet", "Merlin", "Osprey", "Siskin", "Fulmar", "Gannet")
    people = ("Ada", "Bram", "Carys", "Edwin")
    documents = [
        mg.Document(
            f"{one}-{two}",
            f"{one} {two} Bridge",
            f"The {one} {two} Bridge was built in {1830 + n} by {two} {one}. "
            f"The {one} {two} Bridge was opened in {1840 + n} by Ida {one}.",
        )
        for n, (one, two) in enumerate((bridge, person) for bridge in bridges for person in people)
    ]
    index = mg.index(documents, tmp_path / "index").current()
    for seed in range(8):
        by_rules = [row.id for row in template_questions(index, 500, (1, 2), seed, 0.2)]
        assert len(by_rules) == len(set(by_rules))
        ids = [row["id"] for row in split_questions(index, TuneSettings(seed=seed)).rows]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("documents", "rows", "message"),
    [
        (
            DOCUMENTS[:1],
            QUESTIONS[:2],
            "distinct documents with questions: 1.*sections of a document as separate files",
        ),
        (
            [DOCUMENTS[0], mg.Document("copy", DOCUMENTS[0].title, DOCUMENTS[0].text)],
            None,
            "distinct documents with questions: 1",
        ),
        (
            [mg.Document("a", "", "so it is then"), mg.Document("b", "", "and on it goes")],
            None,
            "0 questions to learn from.*--questions",
        ),
        (DOCUMENTS, [{"id": "q", "question": "What?", "answers": ["1911"], "gold_ids": ["mars"]}], "'mars'"),
        (DOCUMENTS, [row | {"answers": []} for row in QUESTIONS], "distinct documents with questions: 0"),
    ],
    ids=["one document", "copies", "no facts", "a document that is not in the index", "no answers"],
)
def test_small_and_unsuitable_corpora_are_refused(
    documents: list[mg.Document], rows: list[dict[str, Any]] | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(mg.UserError, match=message):
        split(tmp_path, documents, rows)


def test_too_few_test_questions_are_reported(tmp_path: Path) -> None:
    with pytest.raises(mg.UserError, match="15 or more to test on"):
        split(tmp_path, DOCUMENTS, QUESTIONS, min_test_questions=15)
    assert split(tmp_path, DOCUMENTS, QUESTIONS, min_test_questions=8, test_share=0.3).count("test") == 8, (
        "the test part should have half of the documents"
    )
