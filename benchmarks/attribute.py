"""Attribution and verification of answers: is the passage that is found for a correct answer a gold one, and are correct answers left unmarked?

hotpotqa_train (questions of HotpotQA's official dev part only): each gold answer, and each gold sentence restated, with the ten passages of
its question; the passages with supporting sentences are gold. A wrong answer is another question's answer, or the title of a
passage that is not gold. qa_feedback: sentences of real answers with their own passages, which are gold, and with
passages of other questions (OTHER_PASSAGES). Milliseconds are processor time.
Run: python -P benchmarks/attribute.py FOLDER_OF_SETS [--rows 400] [--json]
"""

import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.report import Check, new_parser, print_report
from data_synth.claims.restate import PassageSentence, restate
from graph.answer.attribution import attribute
from graph.answer.support import SupportChecker, open_verifier
from graph.answer.verifier import Verifier
from graph.shared.jsonl import read_jsonl
from graph.types import Excerpt

OTHER_PASSAGES = 8
"""Number of passages of other questions that are mixed with the passages of each sentence of qa_feedback."""
MIN_GOLD, MAX_MARKED = 0.85, 0.05


@dataclass(frozen=True)
class Case:
    """An answer and the numbered excerpts shown for it, with the numbers of the gold excerpts and, if known, their supporting sentences."""

    question: str
    answer: str
    excerpts: tuple[Excerpt, ...]
    gold: frozenset[int]
    sentences: tuple[str, ...] = ()


def hotpot_cases(folder: Path, rows: int) -> dict[str, list[Case]]:
    """Cases by kind of answer, from at most `rows` questions of the official dev part."""
    corpus = {row["id"]: row for _, row in read_jsonl(folder / "corpus.jsonl")}
    questions = [row for _, row in read_jsonl(folder / "questions.jsonl") if row["official_split"] == "dev"]
    random.Random(0).shuffle(questions)
    kinds = ("short answers", "yes or no", "restated sentences", "another question's answers", "titles as answers")
    cases: dict[str, list[Case]] = {kind: [] for kind in kinds}
    for row, other in zip(questions[:rows], [*questions[1:], questions[0]], strict=False):
        passages = [corpus[passage] for passage in row["context_ids"]]
        case = _hotpot_case(row, passages, row["answers"][0])
        is_polar = case.answer in ("yes", "no")
        cases["yes or no" if is_polar else "short answers"].append(case)
        wrong = other["answers"][0]
        if not is_polar and wrong not in ("yes", "no", *row["answers"]):
            cases["another question's answers"].append(_hotpot_case(row, passages, wrong))
            title = next(passage["title"] for passage in passages if passage["id"] not in row["gold_ids"])
            cases["titles as answers"].append(_hotpot_case(row, passages, title))
        for passage, at in row["supporting_sentences"]:
            sentences = corpus[passage]["sentences"]
            if at < len(sentences):
                restated, _ = restate(
                    PassageSentence(sentences, at, corpus[passage]["title"]), random.Random(row["id"])
                )
                numbers = frozenset({row["context_ids"].index(passage) + 1})
                cases["restated sentences"].append(Case("", restated, case.excerpts, numbers, (sentences[at],)))
    return cases


def _hotpot_case(row: Mapping[str, Any], passages: Sequence[Mapping[str, Any]], answer: str) -> Case:
    excerpts = tuple(excerpt_of(passage["id"], passage["title"], passage["text"]) for passage in passages)
    gold = frozenset(row["context_ids"].index(passage) + 1 for passage in row["gold_ids"])
    texts = {passage["id"]: passage["sentences"] for passage in passages}
    sentences = tuple(texts[passage][at] for passage, at in row["supporting_sentences"] if at < len(texts[passage]))
    return Case(row["question"], answer, excerpts, gold, sentences)


def feedback_cases(folder: Path, rows: int) -> dict[str, list[Case]]:
    """Cases of supported and unsupported sentences."""
    all_rows = [row for _, row in read_jsonl(folder / "rows.jsonl")]
    random.Random(0).shuffle(all_rows)
    cases: dict[str, list[Case]] = {"supported": [], "unsupported": []}
    for row in all_rows[:rows]:
        rng = random.Random(row["id"])
        other_texts = [text for other in all_rows if other["question"] != row["question"] for text in other["passages"]]
        gold_passages = set(row["passages"])
        texts = [
            *row["passages"],
            *rng.sample([text for text in other_texts if text not in gold_passages], OTHER_PASSAGES),
        ]
        rng.shuffle(texts)
        excerpts = tuple(excerpt_of(str(number), "", text) for number, text in enumerate(texts))
        gold = frozenset(number for number, text in enumerate(texts, start=1) if text in gold_passages)
        kind = "supported" if row["supported"] else "unsupported"
        cases[kind].append(Case(row["question"], row["sentence"], excerpts, gold))
    return cases


def excerpt_of(identity: str, title: str, text: str) -> Excerpt:
    """An excerpt that consists of a complete document."""
    return Excerpt(identity, title, text, identity, 0, len(text))


def measure(cases: Sequence[Case], verifier: Verifier) -> dict[str, float]:
    """Over all answers: the shares that are attributed, marked and not checked, and milliseconds of attribution per answer. Over attributed answers: the
    share that cites only gold passages. Over their quotes, if gold sentences are known: the share that contains, or is part of, a gold sentence.
    """
    started = time.process_time()
    found = [attribute(case.question, case.answer, case.excerpts) for case in cases]
    milliseconds = 1000 * (time.process_time() - started) / len(cases)
    attributed = [(case, citations) for case, citations in zip(cases, found, strict=True) if citations]
    is_gold = [case.gold.issuperset(citations) for case, citations in attributed]
    is_gold_quote = [
        any(quote.text in sentence or sentence in quote.text for sentence in case.sentences)
        for case, citations in attributed
        for citation in citations.values()
        for quote in citation.quotes
        if case.sentences
    ]
    checkers = [(SupportChecker(case.excerpts, verifier, case.question), case.answer) for case in cases]
    figures = {
        "answers": len(cases),
        "attributed": len(attributed) / len(cases),
        "gold passage": float(np.mean(is_gold)) if is_gold else 0.0,
        "marked": float(np.mean([bool(checker.unsupported("answer", answer)) for checker, answer in checkers])),
        "not checked": float(np.mean([bool(checker.not_checked("answer", answer)) for checker, answer in checkers])),
        "milliseconds": milliseconds,
    }
    return figures | ({"gold sentence": float(np.mean(is_gold_quote))} if is_gold_quote else {})


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=400)
    arguments = parser.parse_args()
    sets = {
        "hotpotqa_train": hotpot_cases(arguments.folder / "hotpotqa_train", arguments.rows),
        "qa_feedback": feedback_cases(arguments.folder / "support" / "qa_feedback", arguments.rows),
    }
    verifier = open_verifier("")
    measured = {
        f"{name}, {kind}": measure(cases, verifier) for name, kinds in sets.items() for kind, cases in kinds.items()
    }
    figures = {f"{name}: {figure}": value for name, figures in measured.items() for figure, value in figures.items()}
    right = ("hotpotqa_train, short answers", "hotpotqa_train, restated sentences", "qa_feedback, supported")
    checks = [
        *(Check(f"gold passage, {name}", measured[name]["gold passage"], MIN_GOLD, True) for name in right),
        *(Check(f"marked, {name}", measured[name]["marked"], MAX_MARKED, False) for name in right),
    ]
    return print_report("attribute", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
