"""Conversations: is a question that stands by itself left alone, and are follow-ups found?

    python benchmarks/follow_ups.py --index INDEX [--json]

INDEX is of examples/documents. Recall@5 of `hops`, by rule alone (no model), where the history is read
* for the questions of examples/questions.jsonl: asked alone, and after one and two others, whose documents are not theirs;
* for examples/follow_ups.jsonl: by the rule, by what was done before (the entities of all turns in brackets), with no history, and as somebody
  wrote them down to stand alone. The rule was made on the half called dev.
Answers of earlier turns come as most clients send them, alone, and in the form of training.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.report import Check, print_report
from eval.metrics import recall_at
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
from serve.conversation.rewrite import carry

EXAMPLES = ROOT / "examples"
STEP = 101
"""How far on the question stands that is asked before another: they are in the order of their kinds."""
ALLOWED_LOSS = 0.01
Answers = Literal["alone", "form"]
Rewrite = Callable[[Sequence[Message], str], str]


@dataclass(frozen=True)
class FollowUp:
    """A question, what was said before it, and the same question as it would be asked alone."""

    question: Question
    turns: tuple[Message, ...]
    standalone: str


def by_rule(history: Sequence[Message], question: str) -> str:
    """What is searched for when no model is asked."""
    return carry(exchanges_of(history), question)


def by_entities(history: Sequence[Message], question: str) -> str:
    """What was searched for before: six entities of the last six turns in brackets, the latest first."""
    known = {entity_key(entity) for entity in find_entities(question)}
    found: dict[str, str] = {}
    for turn in reversed(history[-6:]):
        for line in turn.content[:1_000].splitlines():
            for entity in find_entities(line):
                if entity_key(entity) not in known:
                    found.setdefault(entity_key(entity), entity)
    return f"{question} ({', '.join(list(found.values())[:6])})" if found else question


def unrelated(questions: Sequence[Question], place: int, count: int) -> list[Question]:
    """`count` others, with no gold document in common with the one in `place` or each other."""
    found: list[Question] = []
    taken, other = set(questions[place].gold_sources), place
    while len(found) < count:
        other = (other + STEP) % len(questions)
        if taken.isdisjoint(questions[other].gold_sources):
            found.append(questions[other])
            taken.update(questions[other].gold_sources)
    return found


def talk_of(asked: Sequence[Question], answers: Answers) -> list[Message]:
    """Questions and their answers as turns; in the form of training, the reasoning quotes the evidence."""
    turns = []
    for each in asked:
        quotes = " ".join(f"{quote.text} [{number}]" for number, quote in enumerate(each.evidence, 1))
        answer = f"{each.answers[0]} [1]"
        turns.append(Message("user", each.text))
        turns.append(Message("assistant", answer if answers == "alone" else format_answer(quotes, answer)))
    return turns


def read_follow_ups(file: Path, answers: Answers) -> list[FollowUp]:
    """The follow-ups with the answers of their turns in one of the two ways."""
    found = []
    for line, row in read_jsonl(file):
        turns = tuple(Message(turn["role"], _shown(turn["content"], answers)) for turn in row["turns"])
        found.append(FollowUp(parse_question(row, f"{file} line {line}"), turns, row["standalone"]))
    return found


def _shown(text: str, answers: Answers) -> str:
    return parse_answer(text).answer if answers == "alone" and ANSWER in text else text


def recalls(index: Index, texts: Sequence[str], questions: Sequence[Question]) -> list[float]:
    """Recall@5 of each text, judged as its question."""
    found = retrieve_many(index, texts, RetrieveSettings(mode="hops", top_k=20))
    return [
        recall_at(ranked_sources(each), asked.gold_sources, 5) for each, asked in zip(found, questions, strict=True)
    ]


def measure(index: Index) -> dict[str, float]:
    """All figures by name."""
    questions = read_questions(EXAMPLES / "questions.jsonl")
    figures = {"questions, alone": mean(recalls(index, [each.text for each in questions], questions))}
    for answers in ("alone", "form"):
        for count in (1, 2):
            talks = [talk_of(unrelated(questions, place, count), answers) for place in range(len(questions))]
            for name, rewrite in (("rule", by_rule), ("entities", by_entities)):
                texts = [rewrite(talk, each.text) for talk, each in zip(talks, questions, strict=True)]
                key = f"questions, after {count} unrelated, answers {answers}: {name}"
                figures[key] = mean(recalls(index, texts, questions))
        figures |= measure_follow_ups(index, answers)
    return figures


def measure_follow_ups(index: Index, answers: Answers) -> dict[str, float]:
    """Recall@5 of the follow-ups, in all and by half."""
    talks = read_follow_ups(EXAMPLES / "follow_ups.jsonl", answers)
    questions = [talk.question for talk in talks]
    texts = {
        "rule": [by_rule(talk.turns, talk.question.text) for talk in talks],
        "entities": [by_entities(talk.turns, talk.question.text) for talk in talks],
        "no history": [talk.question.text for talk in talks],
        "written to stand alone": [talk.standalone for talk in talks],
    }
    figures = {}
    for name, asked in texts.items():
        found = recalls(index, asked, questions)
        for half in ("all", "dev", "test"):
            kept = [value for value, each in zip(found, questions, strict=True) if half in ("all", each.split)]
            figures[f"follow-ups, {half}, answers {answers}: {name}"] = mean(kept)
    return figures


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = measure(open_index(given.index))
    checks = []
    for answers in ("alone", "form"):
        kept = figures[f"questions, after 2 unrelated, answers {answers}: rule"]
        least = figures["questions, alone"] - ALLOWED_LOSS
        checks.append(Check(f"questions after 2 unrelated, answers {answers}", kept, least, at_least=True))
        ours, before = (figures[f"follow-ups, all, answers {answers}: {name}"] for name in ("rule", "entities"))
        checks.append(Check(f"follow-ups against entities, answers {answers}", ours, before + 1e-9, at_least=True))
    return print_report("follow_ups", figures, checks, given.json)


if __name__ == "__main__":
    raise SystemExit(main())
