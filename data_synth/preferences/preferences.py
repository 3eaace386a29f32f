"""Preference rows (GraphMPA §3.2, Eq. 7): every question over contexts C_0 (none), C_1, …, C_N, each one excerpt longer.

Chosen: reasoning, then the gold answer. Rejected: the answer alone, as in the paper, and for a share of the rows a hard negative with
reasoning of its own. A reasoning by rules keeps sentences whose passage retrieval missed, without the citation; a model's
must be supported by its context.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from data_synth.contexts import FindContexts, context_finder, draft_groups, gold_share
from data_synth.preferences.check import check_by_model
from data_synth.preferences.hard_negatives import HardNegative, Pool, make_hard_negative
from data_synth.preferences.reasons import cite_evidence, compose_reason, model_reasons
from data_synth.preferences.support import MeasureSupport, Support, SupportScorer
from data_synth.types import Draft, Dropped, PreferenceRow
from graph.documents.questions import Question
from graph.prompt.answer import answer_messages, format_answer, parse_answer
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
    cited_only: bool = False,
) -> Iterator[PreferenceRow | Dropped]:
    """The rows of `questions` over contexts of `sizes` excerpts (all up to `settings.top_k`, if none are named).

    `models` write the reasonings, or rules do; with `cited_only` these quote evidence alone, and drop a row whose context lacks some.

    Tokens of a context are counted by the first model, or by the index's encoder.
    """
    compose = cite_evidence if cited_only else compose_reason
    by_rules = Reasoner(BY_RULES, lambda drafts: [compose(draft, index.passages_of) for draft in drafts], False)
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

    `hard_negatives` is the share of hard negatives among all rows, at most half: each stands after the pair that it is matched with.
    """
    pool = Pool()
    for group in draft_groups(questions, find_contexts, sizes):
        whole = [draft for draft in group if isinstance(draft, Draft)]
        told = [write_reasons(whole, reasoner, measure, check) for reasoner in reasoners]
        for reasoned in (one for of_reasoner in told for one in of_reasoner):
            if isinstance(reasoned.reason, str):
                pool.add(reasoned.draft, reasoned.reason)
        by_draft = iter(zip(*told, strict=True))
        for draft in group:
            if isinstance(draft, Dropped):
                yield draft
                continue
            for reasoner, reasoned in zip(reasoners, next(by_draft), strict=True):
                yield from _rows_of(reasoned, _mark(reasoner, reasoners), reasoner.name, pool, hard_negatives)


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
    question, size = draft.question, len(draft.excerpts)
    return PreferenceRow(
        id=f"{question.id}#{size}{mark}" + (f"~{negative.name}" if negative else ""),
        prompt=answer_messages(question.text, draft.excerpts),
        chosen=chosen,
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


def _rows_of(
    reasoned: ReasonedDraft, mark: str, reasoner: str, pool: Pool, hard_negatives: float
) -> Iterator[PreferenceRow | Dropped]:
    """The paper's pair, and its hard negative if the draw says so: each pair has one with probability h / (1 − h), h the share `hard_negatives`."""
    own = finish_row(reasoned, mark, reasoner)
    yield own
    draw = random.Random(
        content_id("hard negatives", reasoned.draft.question.id, str(len(reasoned.draft.excerpts)), mark)
    )
    if isinstance(own, Dropped) or draw.random() >= hard_negatives / (1 - hard_negatives):
        return
    negative = make_hard_negative(reasoned.draft, str(reasoned.reason), pool)
    yield Dropped(NO_HARD_NEGATIVE) if negative is None else finish_row(reasoned, mark, reasoner, negative)


def _mark(reasoner: Reasoner, reasoners: Sequence[Reasoner]) -> str:
    """What tells the rows of several reasoners apart."""
    return f"@{reasoner.name}" if len(reasoners) > 1 else ""
