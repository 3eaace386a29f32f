"""Preference rows (GraphMPA §3.2, Eq. 7): every question over contexts C_1, …, C_N, each one excerpt longer.

Chosen: reasoning, then the gold answer. Rejected: a hard negative with reasoning of its own, or for a share of the rows the answer alone, as in
the paper. Where a context has no gold document and does not hold the answer, "not in the documents" is chosen over the answer. A reasoning by
rules quotes and cites what the context holds; a model's must be supported by its context.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from data_synth.contexts import FindContexts, context_finder, draft_groups, gold_share
from data_synth.preferences.check import check_by_model
from data_synth.preferences.hard_negatives import (
    NO_PASSAGE_SAYS,
    HardNegative,
    Pool,
    invented_negative,
    make_hard_negative,
)
from data_synth.preferences.reasons import compose_reason, holds_answer, is_span, model_reasons
from data_synth.preferences.support import MeasureSupport, Support, SupportScorer
from data_synth.types import Draft, Dropped, PreferenceRow
from graph.documents.questions import Question
from graph.prompt.answer import NOT_FOUND, answer_messages, format_answer, parse_answer
from graph.retrieve import RetrieveSettings
from graph.shared.ids import content_id
from graph.shared.types import LanguageModel

if TYPE_CHECKING:
    from graph.index.index import Index

BY_RULES = "rules"
UNPARSEABLE = "the chosen answer does not parse to the gold one"
UNSUPPORTED = "the context does not support the reasoning"
NO_HARD_NEGATIVE = "no hard negative could be made"


@dataclass(frozen=True)
class Reasoner:
    """Who writes reasonings, by name. A `checked` one's must be supported by the context; gold sentences are by construction."""

    name: str
    write: Callable[[Sequence[Draft]], list[str | Dropped]]
    checked: bool = True


@dataclass(frozen=True)
class ReasonedDraft:
    """A draft, its reasoning (or why there is none), and how far the context supports it (None where nothing is quoted)."""

    draft: Draft
    reason: str | Dropped
    support: Support | None


Check = Callable[[Sequence[Draft], Sequence[str]], Sequence[str]]
"""Drafts and their reasonings to why each is not good enough, "" for a good one: what a second model says."""


def preference_rows(
    index: Index,
    questions: Iterable[Question],
    settings: RetrieveSettings,
    models: Sequence[LanguageModel] = (),
    checker: LanguageModel | None = None,
    hard_negatives: float = 0.0,
    sizes: Collection[int] = (),
) -> Iterator[PreferenceRow | Dropped]:
    """The rows of `questions` over contexts of `sizes` excerpts (all up to `settings.top_k`, if none are named).

    `models` write the reasonings, or rules do, which quote evidence alone and drop a row whose context lacks some. Tokens of a context are counted by the first model, or by the index's encoder.
    """
    by_rules = Reasoner(BY_RULES, lambda drafts: [compose_reason(draft, index.passages_of) for draft in drafts], False)
    reasoners = [Reasoner(model.name, partial(model_reasons, model=model)) for model in models] or [by_rules]

    count_tokens = models[0].count_tokens if models else index.count_tokens
    find_contexts = context_finder(index, settings, count_tokens)
    check = None if checker is None else partial(check_by_model, model=checker)
    yield from make_rows(
        questions, find_contexts, reasoners, SupportScorer(index).of_drafts, hard_negatives, check, sizes
    )


def make_rows(
    questions: Iterable[Question],
    find_contexts: FindContexts,
    reasoners: Sequence[Reasoner],
    measure: MeasureSupport,
    hard_negatives: float = 0.0,
    check: Check | None = None,
    sizes: Collection[int] = (),
) -> Iterator[PreferenceRow | Dropped]:
    """Yield the rows of each question by growing context, in the order of `questions`; what was lost comes as Dropped.

    `hard_negatives` is the share of rows whose rejected side is a hard negative; the others reject the answer alone, as the paper does.
    """
    pools: defaultdict[str, Pool] = defaultdict(Pool)
    for group in draft_groups(questions, find_contexts, sizes):
        whole = [draft for draft in group if isinstance(draft, Draft) and not is_missed(draft)]
        told = [write_reasons(whole, reasoner, measure, check) for reasoner in reasoners]
        for reasoned in (one for of_reasoner in told for one in of_reasoner):
            if isinstance(reasoned.reason, str):
                pools[reasoned.draft.question.split].add(reasoned.draft, reasoned.reason)
        by_draft = iter(zip(*told, strict=True))
        for draft in group:
            if isinstance(draft, Dropped):
                yield draft
                continue
            if is_missed(draft):
                yield refusal_row(draft)
                continue
            pool = pools[draft.question.split]
            for reasoner, reasoned in zip(reasoners, next(by_draft), strict=True):
                yield _pair(reasoned, _mark(reasoner, reasoners), reasoner.name, pool, hard_negatives)


def is_missed(draft: Draft) -> bool:
    """Whether the context of a draft has no gold document (some are named) and does not hold its answer."""
    question, excerpts = draft.question, draft.excerpts
    if not excerpts or not question.gold_sources or gold_share(question.gold_sources, excerpts):
        return False
    if not is_span(draft.answer):
        return True
    accepted = (draft.answer, *question.answers)
    return not any(holds_answer(excerpt.text, answer) for excerpt in excerpts for answer in accepted)


def refusal_row(draft: Draft) -> PreferenceRow:
    """Chosen: that no passage says it; rejected: the answer all the same."""
    negative = invented_negative(draft)
    reasoned = ReasonedDraft(replace(draft, answer=NOT_FOUND), NO_PASSAGE_SAYS, None)
    return replace(_row(reasoned, "", BY_RULES, negative), answers=(NOT_FOUND,), kind="unanswerable")


def write_reasons(
    drafts: Sequence[Draft], reasoner: Reasoner, measure: MeasureSupport, check: Check | None
) -> list[ReasonedDraft]:
    """The reasonings of one reasoner in the order of `drafts`, those dropped that their context does not support."""
    written = reasoner.write(drafts)
    quoted = [n for n, reason in enumerate(written) if isinstance(reason, str) and drafts[n].excerpts]
    texts = [str(written[n]) for n in quoted]
    support = dict(zip(quoted, measure([drafts[n] for n in quoted], texts), strict=True))
    refused: dict[int, Dropped] = {}
    if reasoner.checked:
        refused = {n: Dropped(UNSUPPORTED) for n in quoted if not support[n].holds}
        if check is not None:
            asked = [n for n in quoted if n not in refused]
            said = check([drafts[n] for n in asked], [str(written[n]) for n in asked])
            refused |= {n: Dropped(why) for n, why in zip(asked, said, strict=True) if why}
    return [ReasonedDraft(drafts[n], refused.get(n, reason), support.get(n)) for n, reason in enumerate(written)]


def finish_row(
    reasoned: ReasonedDraft, mark: str, reasoner: str, negative: HardNegative | None = None
) -> PreferenceRow | Dropped:
    """Chosen: the reasoning, then the gold answer; rejected: the answer alone (GraphMPA, Appendix L), or a hard negative."""
    draft, reason = reasoned.draft, reasoned.reason
    if isinstance(reason, Dropped):
        return reason
    chosen = format_answer(reason, draft.answer)
    parsed = parse_answer(chosen)
    if not parsed.well_formed or parsed.answer != draft.answer:
        return Dropped(UNPARSEABLE)
    return _row(reasoned, mark, reasoner, negative)


def _row(reasoned: ReasonedDraft, mark: str, reasoner: str, negative: HardNegative | None) -> PreferenceRow:
    draft = reasoned.draft
    question, size = draft.question, len(draft.excerpts)
    return PreferenceRow(
        id=f"{question.id}#{size}{mark}",
        prompt=answer_messages(question.text, draft.excerpts),
        chosen=format_answer(str(reasoned.reason), draft.answer),
        rejected=negative.text if negative else draft.answer,
        question_id=question.id,
        question=question.text,
        answers=question.answers,
        kind=question.kind,
        split=question.split,
        context_size=size,
        context_ids=tuple(excerpt.id for excerpt in draft.excerpts),
        gold_in_context=gold_share(question.gold_sources, draft.excerpts),
        reasoner=reasoner,
        hard_negative=negative.name if negative else "",
        support=round(reasoned.support.nearness, 4) if reasoned.support else None,
    )


def _pair(
    reasoned: ReasonedDraft, mark: str, reasoner: str, pool: Pool, hard_negatives: float
) -> PreferenceRow | Dropped:
    """The pair of a draft, with a hard negative if the draw says so; Dropped where none can be made."""
    drawn_by = content_id("hard negatives", reasoned.draft.question.id, str(len(reasoned.draft.excerpts)), mark)
    if isinstance(reasoned.reason, Dropped) or random.Random(drawn_by).random() >= hard_negatives:
        return finish_row(reasoned, mark, reasoner)
    negative = make_hard_negative(reasoned.draft, reasoned.reason, pool)
    return Dropped(NO_HARD_NEGATIVE) if negative is None else finish_row(reasoned, mark, reasoner, negative)


def _mark(reasoner: Reasoner, reasoners: Sequence[Reasoner]) -> str:
    """What tells the rows of several reasoners apart."""
    return f"@{reasoner.name}" if len(reasoners) > 1 else ""
