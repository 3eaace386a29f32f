"""README shows the unedited output of a run of the demo: the code that prints it reproduces it to the letter."""

import re
from itertools import groupby

from eval.demo.demo import AnswersToQuestion, ModelAnswer, questions_to_show
from eval.demo.demo_steps import PASSAGES, SHOWN_QUESTIONS
from graph.documents.questions import read_questions
from tests.places import EXAMPLES, ROOT

CITATION = re.compile(r"\[(\d+)\] (.+ · (\S+))")
MODELS = ("before", "after")


def blocks_shown() -> list[list[str]]:
    """The demo's blocks in README, a list of lines for each question."""
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return [list(lines) for filled, lines in groupby(shown.splitlines(), bool) if filled]


def read_answers(lines: list[str]) -> tuple[ModelAnswer, ...]:
    """The models' answers under a question; an answer after training is one line, and its reason follows."""
    texts: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        name = line[2:10].strip() or name
        texts.setdefault(name, []).append(line[10:])
    return tuple(read_answer(name, each) for name, each in texts.items())


def read_answer(name: str, lines: list[str]) -> ModelAnswer:
    answer_lines = [line for line in lines if not CITATION.fullmatch(line)]
    cited = {found[1]: found[2] for line in lines if (found := CITATION.fullmatch(line))}
    if not cited:
        return ModelAnswer(name, " ".join(answer_lines), "", {})
    return ModelAnswer(name, answer_lines[0], " ".join(answer_lines[1:]), cited)


def test_readme_has_the_three_questions_as_the_demo_prints_them():
    questions = questions_to_show(read_questions(EXAMPLES / "questions.jsonl"))
    blocks = blocks_shown()
    assert len(blocks) == len(questions) == SHOWN_QUESTIONS
    for question, lines in zip(questions, blocks, strict=True):
        first = next(place for place, line in enumerate(lines) if line.startswith("  before"))
        answers = read_answers(lines[first:])
        assert tuple(answer.model for answer in answers) == MODELS
        assert AnswersToQuestion(question.text, question.answers[0], answers).as_text().splitlines() == lines


def test_cited_passages_exist():
    for lines in blocks_shown():
        for answer in read_answers([line for line in lines if line.startswith("  ")]):
            for number, source in answer.citations.items():
                assert f"[{number}]" in answer.reason and int(number) <= int(PASSAGES)
                assert (EXAMPLES / "documents" / source.rpartition(" · ")[2]).exists()
