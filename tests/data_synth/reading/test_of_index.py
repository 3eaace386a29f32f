"""Reading sets from an index: the gold passage of a question contains its evidence or its answer; the rows of `modegraph synth reading` pass validation."""

import json
from pathlib import Path

import pytest

from data_synth.dataset.validate import validate_file
from data_synth.reading.reading_rows import NO_CONTEXT, ReadingSettings, reading_rows, set_of_index
from data_synth.rows import Dropped
from graph.documents.questions import Question, Quote, parse_question
from graph.errors import UserError
from graph.index.index import open_index
from tests.commands import run


def sentence_of(folder: Path) -> tuple[str, str, str]:
    """A document, the id of its first passage, and that passage's first sentence."""
    index = open_index(folder)
    passage = index.passages_of(index.sources()[0])[0]
    return passage.source, passage.id, passage.text.split(". ")[0] + "."


def test_gold_passages_contain_the_evidence_or_else_the_answer(hashed_isles: Path) -> None:
    source, passage, sentence = sentence_of(hashed_isles)
    word = sentence.split()[-1].strip(".")
    spaced = sentence.replace(" ", "\n ", 1)
    quoted = Question("q1", "What?", (word,), (source,), (Quote(source, spaced),))
    bare = Question("q2", "What?", (word,), (source,))
    lost = Question("q3", "What?", (word,), (source,), (Quote(source, "It never stood there."),))
    first, second, third = set_of_index(open_index(hashed_isles), [quoted, bare, lost]).questions
    assert first.gold_ids == second.gold_ids == (passage,) and third.gold_ids == ()
    assert passage in first.context_ids
    reordered = Question("q5", "What?", (" ".join(reversed(sentence.split())),), (source,))
    other = Question("q6", "What?", (f"Nothing {word} could hardly mention anywhere whatsoever",), (source,))
    assert [each.gold_ids for each in set_of_index(open_index(hashed_isles), [reordered, other]).questions] == [
        (passage,),
        (),
    ]
    with pytest.raises(UserError, match="not in the index: 'mars'"):
        set_of_index(open_index(hashed_isles), [Question("q4", "What?", ("x",), ("mars",))])


def test_an_unanswerable_question_gets_the_passages_of_the_question_that_it_was_made_from(
    hashed_isles: Path,
) -> None:
    source, passage, sentence = sentence_of(hashed_isles)
    near = [{"id": source, "passage_id": passage, "quote": sentence}]
    rows = [{"id": "q1", "question": "Who?", "near": near}, {"id": "q2", "question": "Where?"}]
    found = set_of_index(open_index(hashed_isles), [parse_question(row, "") for row in rows])
    assert passage in found.questions[0].context_ids and found.questions[0].gold_ids == ()
    assert list(reading_rows(found, ReadingSettings())) == [Dropped(NO_CONTEXT)], "q2 names no document"
    with pytest.raises(UserError, match="not in the index: 'mars'"):
        set_of_index(open_index(hashed_isles), [Question("q", "Who?", (), near=(Quote("mars", sentence),))])
    with pytest.raises(UserError, match="'near' is 'mars'"):
        parse_question({"id": "q", "question": "Who?", "near": "mars"}, "line 1")


def test_the_command_makes_rows_that_pass_validation(hashed_isles: Path, tmp_path: Path) -> None:
    source, _, sentence = sentence_of(hashed_isles)
    row = {
        "answers": [sentence.split()[-1].strip(".")],
        "gold_ids": [source],
        "split": "train",
    }
    rows = [
        {"id": f"q{n}", **row, "question": f"What is said, {n}?", "evidence": [{"id": source, "quote": sentence}]}
        for n in range(5)
    ]
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    words = ["synth", "reading", str(hashed_isles), "--questions", str(file), "--out", str(tmp_path / "rows")]
    done = run(*words, "--set", "without_gold=0", "--json")
    assert done.exit_code == 0, done.output
    found = validate_file(tmp_path / "rows/train.jsonl")
    assert (found.form, found.rows, found.bad) == ("reading", 5, ())
    with pytest.raises(UserError, match="unknown key 'tables'"):
        raise run(*words, "--set", "tables=3").exception
