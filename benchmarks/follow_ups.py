"""Conversations: are standalone questions left unchanged, and do follow-ups find their documents?

    python -P benchmarks/follow_ups.py --index INDEX [--json]

INDEX is an index of examples/documents. The benchmark measures Recall@5 of `hops`, with search queries made without a model,
* for the questions in examples/questions.jsonl: alone, and after one or two questions about different documents;
* for examples/follow_ups.jsonl: with the query that the rule makes (`with_context`), the query of the rule's predecessor (which appends entities of
  earlier turns in brackets), the question without history, and the standalone question in the file. The rule was developed on the dev half.
Earlier answers are given as most clients send them (the answer alone) and in the form used in training.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.report import Check, new_parser, print_report
from eval.metrics.grounding import recall_at
from eval.retrieval import ranked_sources
from graph.answer.prompt import ANSWER, format_answer, parse_answer
from graph.documents.questions import Question, parse_question, read_questions
from graph.extract.entities import entity_key, find_entities
from graph.index.index import Index, open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve_many
from graph.shared.jsonl import read_jsonl
from graph.types import Message
from serve.conversation.prompt import exchanges_of
from serve.conversation.rewrite import with_context

EXAMPLES = ROOT / "examples"
STEP = 101
"""Distance in the file between a question and the unrelated question asked before it; large, because the file is ordered by kind."""
ALLOWED_LOSS = 0.01
Answers = Literal["alone", "form"]
"""How earlier answers are given: the answer alone, or in the form used in training."""


@dataclass(frozen=True)
class FollowUp:
    """A question, the turns before it, and a standalone version of the question."""

    question: Question
    turns: tuple[Message, ...]
    standalone: str


def by_rule(history: Sequence[Message], question: str) -> str:
    """The search query that the rule makes, as the server does without a model."""
    return with_context(exchanges_of(history), question)


def by_entities(history: Sequence[Message], question: str) -> str:
    """The query of the rule's predecessor: the question, then in brackets up to six entities of the last six turns that it does not name, latest first."""
    known = {entity_key(entity) for entity in find_entities(question)}
    entities: dict[str, str] = {}
    for turn in reversed(history[-6:]):
        for line in turn.content[:1_000].splitlines():
            for entity in find_entities(line):
                if entity_key(entity) not in known:
                    entities.setdefault(entity_key(entity), entity)
    return f"{question} ({', '.join(list(entities.values())[:6])})" if entities else question


def unrelated(questions: Sequence[Question], index: int, count: int) -> list[Question]:
    """`count` other questions that share no gold document with the question at `index` or with each other."""
    others: list[Question] = []
    taken, other = set(questions[index].gold_sources), index
    while len(others) < count:
        other = (other + STEP) % len(questions)
        if taken.isdisjoint(questions[other].gold_sources):
            others.append(questions[other])
            taken.update(questions[other].gold_sources)
    return others


def turns_of(questions: Sequence[Question], answers: Answers) -> list[Message]:
    """Questions and their answers as turns; in the form used in training, the reasoning quotes the evidence."""
    turns = []
    for question in questions:
        quotes = " ".join(f"{quote.text} [{number}]" for number, quote in enumerate(question.evidence, 1))
        answer = f"{question.answers[0]} [1]"
        turns.append(Message("user", question.text))
        turns.append(Message("assistant", answer if answers == "alone" else format_answer(quotes, answer)))
    return turns


def read_follow_ups(file: Path, answers: Answers) -> list[FollowUp]:
    """The follow-ups, with the answers of their turns in one of the two forms."""
    follow_ups = []
    for line, row in read_jsonl(file):
        turns = tuple(Message(turn["role"], _turn_text(turn["content"], answers)) for turn in row["turns"])
        follow_ups.append(FollowUp(parse_question(row, f"{file} line {line}"), turns, row["standalone"]))
    return follow_ups


def _turn_text(text: str, answers: Answers) -> str:
    return parse_answer(text).answer if answers == "alone" and ANSWER in text else text


def recalls(index: Index, texts: Sequence[str], questions: Sequence[Question]) -> list[float]:
    """Recall@5 of each text, scored with its question's gold documents."""
    evidences = retrieve_many(index, texts, RetrieveSettings(mode="hops", top_k=20))
    return [
        recall_at(ranked_sources(evidence), question.gold_sources, 5)
        for evidence, question in zip(evidences, questions, strict=True)
    ]


def measure(index: Index) -> dict[str, float]:
    """All figures by name."""
    questions = read_questions(EXAMPLES / "questions.jsonl")
    figures = {"questions, alone": fmean(recalls(index, [question.text for question in questions], questions))}
    for answers in ("alone", "form"):
        for count in (1, 2):
            histories = [turns_of(unrelated(questions, position, count), answers) for position in range(len(questions))]
            for name, rewrite in (("rule", by_rule), ("entities", by_entities)):
                texts = [rewrite(turns, question.text) for turns, question in zip(histories, questions, strict=True)]
                key = f"questions, after {count} unrelated, answers {answers}: {name}"
                figures[key] = fmean(recalls(index, texts, questions))
        figures |= measure_follow_ups(index, answers)
    return figures


def measure_follow_ups(index: Index, answers: Answers) -> dict[str, float]:
    """Recall@5 of the follow-ups, over all of them and by half."""
    follow_ups = read_follow_ups(EXAMPLES / "follow_ups.jsonl", answers)
    questions = [each.question for each in follow_ups]
    texts = {
        "rule": [by_rule(each.turns, each.question.text) for each in follow_ups],
        "entities": [by_entities(each.turns, each.question.text) for each in follow_ups],
        "no history": [each.question.text for each in follow_ups],
        "written to stand alone": [each.standalone for each in follow_ups],
    }
    figures = {}
    for name, variants in texts.items():
        values = recalls(index, variants, questions)
        for half in ("all", "dev", "test"):
            half_values = [
                value for value, question in zip(values, questions, strict=True) if half in ("all", question.split)
            ]
            figures[f"follow-ups, {half}, answers {answers}: {name}"] = fmean(half_values)
    return figures


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--index", type=Path, required=True)
    arguments = parser.parse_args()
    figures = measure(open_index(arguments.index))
    checks = []
    for answers in ("alone", "form"):
        recall = figures[f"questions, after 2 unrelated, answers {answers}: rule"]
        least = figures["questions, alone"] - ALLOWED_LOSS
        checks.append(Check(f"questions after 2 unrelated, answers {answers}", recall, least, at_least=True))
        ours, predecessor = (figures[f"follow-ups, all, answers {answers}: {name}"] for name in ("rule", "entities"))
        checks.append(Check(f"follow-ups against entities, answers {answers}", ours, predecessor + 1e-9, at_least=True))
    return print_report("follow_ups", figures, checks, arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
