"""Questions with the passages that readers called right: what relevance and route rows are made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from data_synth.feedback.last_word import folded
from data_synth.feedback.rows import GONE, Lookup, question_id
from data_synth.relevance.types import GoldQuestion
from data_synth.types import Dropped
from graph.documents.questions import Question, Quote
from graph.feedback.types import Correction, Feedback, RightPassage


def gold_questions(entries: Sequence[Feedback], lookup: Lookup) -> tuple[list[GoldQuestion], list[Dropped]]:
    """Every question once, with its right passages as quotes (none, where nobody named one), and the documents shown beside them."""
    asked: dict[str, str] = {}
    right: defaultdict[str, dict[Quote, None]] = defaultdict(dict)
    shown: defaultdict[str, dict[str, None]] = defaultdict(dict)
    dropped: list[Dropped] = []
    for entry in entries:
        one = folded(entry.question)
        asked.setdefault(one, entry.question)
        named, beside = _named(entry)
        for passage in map(lookup.passage, named):
            if passage is None:
                dropped.append(Dropped(GONE))
            else:
                right[one][Quote(passage.source, passage.text)] = None
        for passage in filter(None, map(lookup.passage, beside)):
            shown[one][passage.source] = None
    return [_gold_question(text, list(right[one]), shown[one]) for one, text in asked.items()], dropped


def _named(entry: Feedback) -> tuple[Sequence[str], Sequence[str]]:
    """The passages that an entry calls right, and those that were shown."""
    match entry.said:
        case RightPassage(passage_id, shown_ids):
            return (passage_id,), shown_ids
        case Correction(answer, _, _, passage_ids):
            return passage_ids, answer.context_ids if passage_ids else ()
        case _:
            return (), ()


def _gold_question(text: str, right: Sequence[Quote], shown: Iterable[str]) -> GoldQuestion:
    sources = tuple(dict.fromkeys(quoted.source for quoted in right))
    question = Question(question_id(text), text, (), sources, tuple(right))
    return GoldQuestion(question, tuple(source for source in shown if source not in sources))
