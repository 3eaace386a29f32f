"""`eval reading`: contexts, scores and figures computed by hand, and the command on a set, with a fake reader that knows the answers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from data_synth.reading.reading_form import score_reading
from data_synth.reading.sets import ReadingQuestion, ReadingSet
from data_synth.texts import occurs_in, words_of
from eval.cli import add_eval
from eval.reading import (
    ReadingTask,
    answer_all,
    constant_answers,
    drop_unsupported,
    gold_tasks,
    pick_questions,
    reading_figures,
    report_left_out,
    score_text,
    unanswerable_tasks,
)
from graph.answer.prompt import NOT_FOUND
from graph.answer.verifier import word_verifier
from graph.errors import UserError
from graph.types import CompletionRequest, Excerpt
from tests.commands import run
from tests.data_synth.reading.test_rows import write_set
from tests.data_synth.reading.world import QUESTIONS, TEXTS, isles
from tests.fakes import ScriptedModel


def tasks_with(distractors: int = 2) -> list[ReadingTask]:
    return gold_tasks(isles(), QUESTIONS, distractors, seed=0)


def reply_from_gold(request: CompletionRequest) -> str:
    """The first accepted answer with citations of the gold passages; a refusal if the question has no answer."""
    text = request.messages[-1].content
    question = next(one for one in QUESTIONS if text.endswith(f"Question: {one.text}"))
    lines = [line for line in text.splitlines() if line.startswith("[")]
    golds = [n for n, line in enumerate(lines, start=1) if any(TEXTS[one] in line for one in question.gold_ids)]
    return " ".join([question.answers[0], *(f"[{n}]" for n in golds)]) if question.answers else NOT_FOUND


def test_gold_passages_are_mixed_with_others_that_lack_the_answer() -> None:
    for one in tasks_with():
        ids = [excerpt.id for excerpt in one.excerpts]
        assert len(set(ids)) == len(ids) <= len(one.question.gold_ids) + 2
        assert {ids[number - 1] for number in one.gold} == set(one.question.gold_ids)
        if one.question.answers and not one.question.is_yes_no:
            others = [words_of(TEXTS[each]) for each in ids if each not in one.question.gold_ids]
            assert not any(occurs_in(answer, words) for answer in one.question.answers for words in others)
    assert {len(one.excerpts) - len(one.question.gold_ids) for one in tasks_with(0)} == {0}
    assert tasks_with() == tasks_with()
    places = {min(one.gold) for seed in range(20) for one in gold_tasks(isles(), QUESTIONS[:1], 2, seed)}
    assert places == {1, 2, 3}


def test_if_all_passages_are_distractors_a_refusal_is_the_correct_answer() -> None:
    """Every answerable question gets passages that are not gold and do not contain its answer (unless it is yes or no), so a refusal is correct."""
    tasks = unanswerable_tasks(isles(), QUESTIONS, 2, seed=0)
    answerable = {one.id: one for one in QUESTIONS if one.answers}
    assert {one.question.id for one in tasks} == set(answerable)
    assert tasks == unanswerable_tasks(isles(), QUESTIONS, 2, seed=0)
    for one in tasks:
        texts, original = [words_of(TEXTS[excerpt.id]) for excerpt in one.excerpts], answerable[one.question.id]
        assert (
            1 <= len(texts) <= 2
            and not one.gold
            and not {excerpt.id for excerpt in one.excerpts} & set(original.gold_ids)
        )
        assert original.is_yes_no or not any(occurs_in(each, text) for each in original.answers for text in texts)
        assert score_text(one, NOT_FOUND).score.exact and not score_text(one, original.answers[0]).score.exact
    assert unanswerable_tasks(isles(), QUESTIONS, 0, seed=0) == []


def test_an_answerable_question_without_gold_passages_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    questions = [replace(QUESTIONS[0], gold_ids=()), QUESTIONS[1], QUESTIONS[9]]
    tasks = gold_tasks(isles(), questions, 2, seed=0)
    assert [one.question.id for one in tasks] == ["q1", "q9"]
    report_left_out(isles(), questions, tasks)
    assert "isles: 1 of 3 questions left out: the question names no gold passage" in capsys.readouterr().err
    with pytest.raises(
        UserError, match=r"1 of 1 questions left out.* Expected questions with gold_ids\. Add them; only `eval reading"
    ):
        report_left_out(isles(), questions[:1], [])


def test_more_than_five_distractors_come_from_bm25() -> None:
    passages = {f"p{n}": Excerpt(f"p{n}", "", f"The ferry number {n} was built.", source=f"p{n}") for n in range(20)}
    question = ReadingQuestion("q", "Who built the ferry?", ("Ida",), ("p0",), (), (), "", "test")
    source = ReadingSet("ferries", passages, (question,))
    for make, gold in ((gold_tasks, 1), (unanswerable_tasks, 0)):
        for distractors in (3, 10):
            (task,) = make(source, [question], distractors, seed=0)
            assert len({excerpt.id for excerpt in task.excerpts}) == gold + distractors


def test_without_passages_a_task_is_refused_without_a_call_except_in_closed_book_mode() -> None:
    model, tasks = ScriptedModel(lambda request: "1911"), [ReadingTask(QUESTIONS[0], ())]
    assert [one.text for one in answer_all(model, tasks, "cited")] == [NOT_FOUND] and model.requests == []
    assert [one.text for one in answer_all(model, tasks, "cited", closed_book=True)] == ["1911"]


def test_a_request_that_the_server_refuses_is_an_error_and_no_answer() -> None:
    model = ScriptedModel(lambda request: "status 400 (the prompt is too long)", finish_reason="refused")  # type: ignore[arg-type]
    with pytest.raises(
        UserError, match=r"question 'q0': the server refused the request \(status 400 .* Use fewer or shorter passages"
    ):
        answer_all(model, tasks_with()[:1], "cited")


def test_a_reader_that_knows_the_answers_gets_full_marks() -> None:
    figures = reading_figures(answer_all(ScriptedModel(reply_from_gold), tasks_with(), "cited"))
    whole = figures["all"]
    assert (whole.questions, whole.exact.mean, whole.f1.mean) == (12, 1.0, 1.0)
    assert (whole.refused_answerable, whole.refused_unanswerable) == (0.0, 1.0)
    assert (whole.cites, whole.cites_gold) == (1.0, 1.0)
    assert set(figures) == {"all", "single", "multi", "yes or no", "unanswerable"}
    assert figures["yes or no"].questions == 3 and figures["unanswerable"].questions == 1


def test_an_answer_that_the_verifier_finds_unsupported_counts_as_a_refusal() -> None:
    tasks = [task for task in tasks_with() if task.question.answers != ("nobody knows",)]
    verifier = word_verifier("")
    knowing = answer_all(ScriptedModel(reply_from_gold), tasks, "cited")
    assert drop_unsupported(knowing, verifier, "cited") == knowing
    wrong = "Casimir Thole never built ships in 1742"
    for text in (f"{wrong} [1].", f"{wrong} [1]. {wrong} [2]."):
        answers = answer_all(ScriptedModel(lambda request, text=text: text), tasks, "cited")  # type: ignore[misc]
        assert {answer.text for answer in drop_unsupported(answers, verifier, "cited")} == {NOT_FOUND}
    answers = [score_text(task, f"{wrong}. {task.excerpts[0].text}") for task in tasks]
    assert drop_unsupported(answers, verifier, "cited") == answers, "one sentence is supported"


def test_figures_match_values_computed_by_hand() -> None:
    """Answers: correct with a correct citation, correct with a wrong one, partly correct without one, a refusal, and an answer to an unanswerable question."""
    first, second, third, fourth, fifth = (tasks_with(2)[n] for n in (0, 2, 3, 1, 9))
    wrong = next(n for n in range(1, 4) if n not in second.gold)
    answers = [
        score_text(first, f"1911 [{min(first.gold)}]"),
        score_text(second, f"###Reason: So [{wrong}]. ###Answer: 1884"),
        score_text(third, "in the year 1903"),
        score_text(fourth, "Not in the documents."),
        score_text(fifth, "Ida [1]"),
    ]
    figures = reading_figures(answers)["all"]
    assert figures.exact.mean == pytest.approx(2 / 5)
    assert figures.f1.mean == pytest.approx((1 + 1 + 4 / 5) / 5), (
        "the third answer has the words (in, year, 1903), its reference (in, 1903)"
    )
    assert figures.f1_beyond_question.mean == pytest.approx(figures.f1.mean), "no answer repeats its question"
    repeated = score_text(first, f"{first.question.text.removesuffix('?')}: 1884")
    assert reading_figures([repeated])["all"].f1_beyond_question.mean == 0.0
    assert (figures.refused_answerable, figures.refused_unanswerable) == (0.25, 0.0)
    assert figures.cites == pytest.approx(3 / 4) and figures.cites_gold == 0.5
    assert figures.exact.low <= figures.exact.mean <= figures.exact.high


def test_the_constant_answer_is_the_most_frequent_one() -> None:
    tasks = [one for one in tasks_with() if one.question.kind in ("boolean", "unanswerable")]
    assert {one.text for one in constant_answers(tasks)} == {"no"}
    assert reading_figures(constant_answers(tasks))["all"].exact.mean == 0.5


def test_the_choice_of_questions_does_not_depend_on_their_order_and_a_missing_split_is_an_error() -> None:
    source = isles()
    assert (
        pick_questions(source, None, 4, 0)
        == pick_questions(replace(source, questions=source.questions[::-1]), None, 4, 0)[::-1]
    )
    assert len(pick_questions(source, "train", None, 0)) == 12 and pick_questions(source, None, 5, 0) != pick_questions(
        source, None, 5, 1
    )
    with pytest.raises(UserError, match="no questions of split 'dev'"):
        pick_questions(source, "dev", None, 0)


@pytest.mark.parametrize("text", ["", "not in the documents", "[1]", "Unknown."])
def test_an_answer_without_information_is_a_refusal(text: str) -> None:
    assert score_reading(text, ["1911"], {1}, 2).refuses == 1.0


@pytest.mark.parametrize(
    ("text", "gold", "refuses"),
    [("Unknown [1]", "unknown", 0.0), ("N/A [1]", "N/A", 0.0), ("Unknown", "N/A", 1.0), ("", "The", 1.0)],
)
def test_a_gold_answer_in_the_words_of_a_refusal_is_right(text: str, gold: str, refuses: float) -> None:
    score = score_reading(text, [gold], {1}, 2)
    assert (score.exact, score.f1, score.refuses) == (1 - refuses, 1 - refuses, refuses)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--no-passages --index my-index", "--index with --no-passages: it would have no effect. Leave out one of"),
        ("--no-passages --distractors 3", "--distractors with --no-passages: it would have no effect"),
        ("--no-passages --top-k 5", "--top-k with --no-passages: it would have no effect"),
        ("--index my-index --distractors 0", "--distractors with --index: it would have no effect"),
        ("--mode dense", "--mode without --index: it would have no effect. Add --index, or leave it out"),
        ("--top-k 5", "--top-k without --index: it would have no effect"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused_even_with_its_default(options: str, message: str) -> None:
    refused = run("eval", "reading", "isles", "--model", "hf:any", *options.split())
    assert isinstance(refused.exception, UserError) and message in str(refused.exception)


def test_the_command_measures_every_model_and_writes_the_answers(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "isles", isles())
    opened: list[str] = []

    def open_scripted(spec: str, ledger: Path | None = None) -> ScriptedModel:
        opened.append(spec)
        return ScriptedModel(reply_from_gold if spec == "hf:knowing" else lambda request: "yes [1]")

    app = typer.Typer()
    add_eval(app, open_scripted)
    words = [
        "eval",
        "reading",
        folder,
        "--model",
        "hf:knowing",
        "--model",
        "hf:yes",
        "--distractors",
        1,
        "--out",
        tmp_path / "out",
    ]
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert opened == ["hf:knowing", "hf:yes"] and list(figures) == ["constant answer", *opened]
    assert figures["hf:knowing"]["all"]["exact"]["mean"] == 1.0 > figures["hf:yes"]["all"]["exact"]["mean"]
    rows = [json.loads(line) for line in (tmp_path / "out/answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 3 * 12 and {"text", "passages", "exact"} <= set(rows[0])
    table = CliRunner().invoke(app, [*map(str, words)]).stdout
    assert "hf:yes, yes or no" in table and "constant answer, all" in table
    checked = CliRunner().invoke(app, [*map(str, words), "--verifier", "", "--json"])
    assert list(json.loads(checked.stdout))[1:3] == ["hf:knowing", "hf:knowing, checked"], checked.output
