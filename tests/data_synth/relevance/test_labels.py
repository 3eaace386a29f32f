"""Propositions found for gold sentences, and labels made from a model's choices."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_synth.relevance.relevance_form import check_sources, read_gold_questions, with_sentences
from data_synth.relevance.relevance_rows import (
    CANDIDATES_PER_CALL,
    NO_GOLD,
    NO_PROPOSITION,
    SENTENCE_NOT_FOUND,
    UNUSABLE_CHOICE,
    find_quote,
    gold_rows,
    labels_by_model,
    quoted_rows,
    rows_of_sources,
)
from data_synth.rows import Dropped
from graph.documents.questions import Question, Quote
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.parts.query import Caller, Query
from graph.types import CompletionRequest, Document, Passage
from tests.corpora import ISLES
from tests.data_synth.test_cli import write_rows
from tests.fakes import ScriptedModel
from tests.graph.hashed import build

MANY = Document("many", "Many", " ".join(f"Mason{n} built the pier of Haven{n}." for n in range(30)))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(tmp_path_factory.mktemp("labels") / "index", [*ISLES, MANY])


def texts(index: Index, rows: Any) -> list[str]:
    return sorted(index.data.proposition_texts[row] for row in rows)


def test_a_quoted_sentence_gives_the_proposition_read_from_it_and_no_other(index: Index) -> None:
    found = quoted_rows(index, Quote("ada", "She was born in  Tarn and died on 4 May 1931."))
    assert not isinstance(found, Dropped)
    assert [("born in Tarn" in text) for text in texts(index, found)] == [True]


def test_occurrences_of_a_proposition_in_other_documents_do_not_count(tmp_path: Path) -> None:
    bell, eels = "The bell of Quill rings at noon.", "The eels of Haven are smoked."
    index = build(tmp_path / "index", [Document("one", "", f"{eels} {bell}"), Document("two", "", bell)])
    found = quoted_rows(index, Quote("one", eels))
    assert not isinstance(found, Dropped) and texts(index, found) == [eels]


def test_an_overlap_of_half_the_shorter_span_is_enough_and_less_is_not(index: Index) -> None:
    sentence = "She was born in Tarn and died on 4 May 1931."
    shifted = f"a shipwright. {sentence[:25]}"
    found = quoted_rows(index, Quote("ada", shifted))
    assert not isinstance(found, Dropped) and len(found) == 1
    assert "born in Tarn" in index.data.proposition_texts[int(found[0])]


def test_a_sentence_that_is_not_in_its_document_is_reported(index: Index) -> None:
    assert quoted_rows(index, Quote("ada", "She was born in Quill.")) == Dropped(SENTENCE_NOT_FOUND)
    question = Question("q", "?", (), evidence=(Quote("ada", "She was born in Quill."),))
    rows, lost = gold_rows(index, question)
    assert len(rows) == 0 and lost == [Dropped(SENTENCE_NOT_FOUND)]


def test_a_sentence_that_no_proposition_was_read_from_is_reported(tmp_path: Path) -> None:
    index = build(tmp_path / "index", [Document("d", "Pier", "# Harbour notes\n\nMason built the pier of Haven.")])
    assert quoted_rows(index, Quote("d", "# Harbour notes")) == Dropped(NO_PROPOSITION)


def test_without_sentences_all_of_a_gold_document_is_gold(index: Index) -> None:
    rows, lost = gold_rows(index, Question("q", "?", (), gold_sources=("tarn", "tarn")))
    assert texts(index, rows) == texts(index, rows_of_sources(index, ["tarn"])) and len(rows) == 2 and lost == []


def test_a_question_without_gold_is_reported(index: Index) -> None:
    rows, lost = gold_rows(index, Question("q", "?", ()))
    assert len(rows) == 0 and rows.dtype == np.int64 and lost == [Dropped(NO_GOLD)]


def test_a_quote_may_span_two_passages_and_occur_twice() -> None:
    def passage(order: int, start: int, text: str) -> Passage:
        return Passage(str(order), "d", "", order, start, start + len(text), text)

    document = [passage(0, 0, "One two"), passage(1, 8, "three. One two three.")]
    assert find_quote(document, "One two three.") == [(0, 14), (15, 29)]
    assert find_quote(document, "") == [] and find_quote([], "One") == []
    assert find_quote(document, "One.two") == []


def test_an_unknown_document_is_an_error_and_not_an_empty_result(index: Index) -> None:
    with pytest.raises(KeyError):
        rows_of_sources(index, ["nowhere"])


def candidates(index: Index) -> Any:
    return rows_of_sources(index, ["many"])


def query_with_model(index: Index, model: ScriptedModel) -> Query:
    return Query(
        "Who built the pier of Haven7?", index.encode_queries(["Who built the pier of Haven7?"])[0], Caller(model)
    )


def test_the_propositions_that_a_model_selects_from_any_list_are_labelled_relevant(index: Index) -> None:
    def select(request: CompletionRequest) -> str:
        lines = [line for line in request.messages[1].content.splitlines() if line.startswith("[")]
        return json.dumps(
            {"selected": [n for n, line in enumerate(lines, start=1) if "Haven7." in line or "Haven21." in line]}
        )

    model = ScriptedModel(select)
    rows = candidates(index)
    verdicts = labels_by_model(index, query_with_model(index, model), rows)
    chosen = [index.data.proposition_texts[row] for row, verdict in zip(rows, verdicts, strict=True) if verdict is True]
    assert sorted(text.split()[-1] for text in chosen) == ["Haven21.", "Haven7."]
    assert verdicts.count(False) == len(rows) - 2
    assert len(model.requests) == -(-len(rows) // CANDIDATES_PER_CALL) == 2


def test_an_unusable_reply_labels_nothing(index: Index) -> None:
    def select(request: CompletionRequest) -> str:
        return "no idea" if "Haven7." in request.messages[1].content else '{"selected": []}'

    verdicts = labels_by_model(index, query_with_model(index, ScriptedModel(select)), candidates(index))
    assert verdicts.count(Dropped(UNUSABLE_CHOICE)) == CANDIDATES_PER_CALL
    assert verdicts.count(False) == 30 - CANDIDATES_PER_CALL


NUMBERED = {
    "id": "q",
    "question": "Born?",
    "gold_ids": ["ada"],
    "supporting_sentences": [["ada", 1]],
    "context_ids": ["ada", "tarn"],
}
CORPUS = {"id": "ada", "text": "One. Two.", "sentences": ["One.", "Two."]}


def test_numbered_sentences_become_quotes(tmp_path: Path) -> None:
    questions = read_gold_questions(write_rows(tmp_path / "questions.jsonl", NUMBERED))
    assert questions[0].own_sources == ("ada", "tarn") and questions[0].stated_split is None
    assert questions[0].gold_sources == ("ada",) and questions[0].question.evidence == ()
    found = with_sentences(questions, write_rows(tmp_path / "corpus.jsonl", CORPUS))
    assert found[0].question.evidence == (Quote("ada", "Two."),)


def test_quotes_in_the_file_take_precedence_over_numbers_and_need_no_corpus(tmp_path: Path) -> None:
    row = {**NUMBERED, "evidence": [{"id": "ada", "quote": "One."}], "split": "dev"}
    questions = read_gold_questions(write_rows(tmp_path / "questions.jsonl", row))
    assert questions[0].stated_split == "dev"
    assert with_sentences(questions, tmp_path / "missing.jsonl")[0].question.evidence == (Quote("ada", "One."),)


@pytest.mark.parametrize(
    ("row", "corpus", "message"),
    [
        ({**NUMBERED, "supporting_sentences": [["ada", 2]]}, CORPUS, "gold sentence 2 of 'ada', which has 2 sentences"),
        ({**NUMBERED, "supporting_sentences": [["ada", -1]]}, CORPUS, "gold sentence -1 of 'ada'"),
        ({**NUMBERED, "supporting_sentences": [["eve", 0]]}, CORPUS, "'eve', which is not in the corpus file"),
        ({**NUMBERED, "supporting_sentences": [["ada"]]}, CORPUS, "line 1: 'supporting_sentences' is [['ada']]"),
        ({**NUMBERED, "supporting_sentences": {"ada": 1}}, CORPUS, "'supporting_sentences'"),
        ({**NUMBERED, "context_ids": "ada"}, CORPUS, "'context_ids' is ada"),
        (NUMBERED, None, "no such file, but the questions refer to sentences"),
    ],
)
def test_bad_gold_sentences_are_reported(
    tmp_path: Path, row: dict[str, Any], corpus: dict[str, Any] | None, message: str
) -> None:
    questions = write_rows(tmp_path / "questions.jsonl", row)
    if corpus is not None:
        write_rows(tmp_path / "corpus.jsonl", corpus)
    with pytest.raises(UserError) as problem:
        with_sentences(read_gold_questions(questions), tmp_path / "corpus.jsonl")
    assert message in str(problem.value)


def test_documents_that_the_index_lacks_are_reported(tmp_path: Path) -> None:
    questions = read_gold_questions(write_rows(tmp_path / "questions.jsonl", NUMBERED))
    check_sources(questions, ["ada", "tarn"])
    with pytest.raises(UserError, match="documents that are not in the index: 'tarn'"):
        check_sources(questions, ["ada"])
