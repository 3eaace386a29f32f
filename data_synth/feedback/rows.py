"""Preference rows of what readers found better: the prompt that the answers were written from, and both answers in the form of training.

An answer that came without a reasoning gets one by rules: the sentence closest to question and answer, of the passages that the
reader named for it or else of those that were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from data_synth.contexts import gold_share
from data_synth.feedback.judged import Better
from data_synth.feedback.last_word import folded
from data_synth.preferences.hard_negatives import WORSE
from data_synth.preferences.preference_form import preference_problems
from data_synth.preferences.preferences import BY_RULES
from data_synth.preferences.reasons import UNSUPPORTED, cite_statement, closest_statements
from data_synth.types import Draft, Dropped, PreferenceRow
from graph.documents.questions import Question
from graph.feedback.types import GivenAnswer
from graph.prompt.answer import answer_messages, format_answer
from graph.prompt.context import of_passage, of_proposition, of_summary
from graph.shared.ids import content_id, shown_id
from graph.shared.types import Excerpt, Passage
from graph.text.prompting import quote

if TYPE_CHECKING:
    from graph.index.index import Index

GONE = "a passage that the index no longer holds"
MISSHAPEN = "no row to learn from: "
_READ = "read"
"""The one source that a reasoning by rules is asked to quote: all passages that it may."""


class Lookup:
    """What an index holds under the ids that feedback names."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def excerpt(self, one: str) -> Excerpt | None:
        """A passage, proposition or summary as a prompt quotes it; None where the index does not hold it."""
        if (passage := self.passage(one)) is not None:
            return of_passage(passage)
        if one in self._propositions:
            proposition = self._index.proposition(self._propositions[one])
            source = proposition.spans[0].source
            title = next((each.title for each in self._index.passages_of(source)), "")
            return of_proposition(proposition, {source: title})
        if one in self._summaries:
            return of_summary(self._index.summary(self._summaries[one]))
        return None

    def passage(self, one: str) -> Passage | None:
        """A passage; None where the index does not hold it."""
        row = self._passages.get(one)
        return None if row is None else self._index.passage(row)

    @cached_property
    def _passages(self) -> dict[str, int]:
        return {one: row for row, one in enumerate(self._index.data.passage_ids)}

    @cached_property
    def _propositions(self) -> dict[str, int]:
        return {one: row for row, one in enumerate(self._index.data.proposition_ids)}

    @cached_property
    def _summaries(self) -> dict[str, int]:
        return {one: row for row, one in enumerate(self._index.data.summary_ids)}


def question_id(question: str) -> str:
    """The id of a question that readers asked."""
    return f"feedback-{shown_id(content_id('feedback', folded(question)))}"


def preference_rows(
    better: Iterable[Better], lookup: Lookup, split: Mapping[str, str], gold: Mapping[str, Sequence[str]]
) -> Iterator[PreferenceRow | Dropped]:
    """A row for each pair; `split` and the `gold` documents are by the id of the question."""
    for each in better:
        excerpts = [lookup.excerpt(one) for one in each.chosen.context_ids]
        whole = [excerpt for excerpt in excerpts if excerpt is not None]
        named = [lookup.passage(one) for one in each.passage_ids]
        if len(whole) < len(excerpts) or None in named:
            yield Dropped(GONE)
            continue
        one = question_id(each.question)
        passages = [passage for passage in named if passage is not None]
        question = Question(one, each.question, (quote(each.chosen.text),), tuple(gold.get(one, ())), split=split[one])
        yield make_row(each, Draft(question, question.answers[0], tuple(whole)), passages)


def make_row(better: Better, draft: Draft, named: Sequence[Passage]) -> PreferenceRow | Dropped:
    """The row of one pair over the excerpts of `draft`; `named` are passages that a reader named for the better answer."""
    question, excerpts = draft.question, draft.excerpts
    reason: str | Dropped = better.chosen.reasoning.strip() or reason_by_rules(draft, named)
    if isinstance(reason, Dropped):
        return reason
    chosen, rejected = format_answer(reason, draft.answer), in_form(better.rejected)
    row = PreferenceRow(
        id=f"{question.id}#{len(excerpts)}@{shown_id(content_id(chosen, rejected))}",
        prompt=answer_messages(question.text, excerpts),
        chosen=chosen,
        rejected=rejected,
        question_id=question.id,
        question=question.text,
        answers=question.answers,
        kind=question.kind,
        split=question.split,
        context_size=len(excerpts),
        context_ids=tuple(excerpt.id for excerpt in excerpts),
        gold_in_context=gold_share(question.gold_sources, excerpts),
        reasoner=better.chosen.model if better.chosen.reasoning.strip() else BY_RULES,
        hard_negative=WORSE if better.rejected.reasoning.strip() else "",
    )
    problems = preference_problems(row)
    return Dropped(f"{MISSHAPEN}{problems[0]}") if problems else row


def reason_by_rules(draft: Draft, named: Sequence[Passage]) -> str | Dropped:
    """The sentence of the `named` passages, or else of those read, that is closest to question and answer, cited where it was read."""
    read = [Passage(each.id, _READ, each.title, 0, each.start, each.end, each.text) for each in draft.excerpts]
    wanted = f"{draft.question.text} {draft.answer}"
    statements = closest_statements(wanted, (_READ,), lambda _: named or read)
    return " ".join(cite_statement(one, draft.excerpts) for one in statements) or Dropped(UNSUPPORTED)


def in_form(answer: GivenAnswer) -> str:
    """An answer in the form of training, or the answer alone where it came without a reasoning."""
    text = quote(answer.text)
    return format_answer(answer.reasoning, text) if answer.reasoning.strip() else text
