"""Preference rows (GraphMPA §3.2, Eq. 7): each question with every context C_1, …, C_N, which by default have 1, …, N excerpts.

Chosen: reasoning, then the gold answer. Rejected: for the share `hard_negatives` of the rows a hard negative with its own reasoning, for the others
the gold answer alone, as in the paper. Where a context contains neither a gold document nor the answer, "not in the documents" is chosen. Reasoning by
rules quotes and cites the context, or came with the question; reasoning by a model must be supported by it, and may be checked by a second model."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from data_synth.contexts import FindContexts, QuestionSelection, context_finder, draft_groups, gold_share, task_of
from data_synth.preferences.hard_negatives import REFUSAL, HardNegative, Pool, invented_negative, make_hard_negative
from data_synth.preferences.reasons import compose_reason, holds_answer, is_span, model_reasons
from data_synth.preferences.support import MeasureSupport, Support, SupportScorer
from data_synth.rows import Draft, Dropped, PreferenceRow
from graph.answer.prompt import NOT_FOUND, answer_messages, format_answer, parse_answer, with_title
from graph.documents.questions import Question
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.parts.query import RetrieveSettings
from graph.shared.console import track
from graph.shared.ids import content_id
from graph.text.prompting import fill, quote
from graph.text.replies import ReplyModel, replies_of
from graph.types import LanguageModel, OpenModel

NOT_SUPPORTED = "the checking model finds the reasoning unsupported"
NO_VERDICT = "the checking model gave no verdict"
MAX_VERDICT_TOKENS = 64
SUPPORT_MEASURES = "encoder similarity and the share of names in the context"


class Verdict(ReplyModel):
    """The reply of the checking model."""

    supported: bool


def check_by_model(drafts: Sequence[Draft], reasons: Sequence[str], model: LanguageModel) -> list[str]:
    """Why the reasoning of each draft is rejected, in the words of the dataset card; "" if it is accepted."""
    texts = [
        fill("data_synth/check.txt", question_over_passages=task_of(draft), reason=quote(reason), answer=draft.answer)
        for draft, reason in zip(drafts, reasons, strict=True)
    ]
    verdicts = replies_of(model, Verdict, texts, MAX_VERDICT_TOKENS)
    return [NO_VERDICT if each is None else "" if each.supported else NOT_SUPPORTED for each in verdicts]


BY_RULES = "rules"
UNPARSEABLE = "the chosen answer does not parse to the gold one"
UNSUPPORTED = "the context does not support the reasoning"
NO_HARD_NEGATIVE = "no hard negative could be made"


@dataclass(frozen=True)
class Reasoner:
    """A writer of reasoning. If `checked`, reasoning that the context does not support is dropped. Reasoning by rules is not checked."""

    name: str
    write: Callable[[Sequence[Draft]], list[str | Dropped]]
    checked: bool = True


@dataclass(frozen=True)
class ReasonedDraft:
    """A draft, its reasoning (or why there is none), and how far the context supports it (None without a context or reasoning)."""

    draft: Draft
    reason: str | Dropped
    support: Support | None


Check = Callable[[Sequence[Draft], Sequence[str]], Sequence[str]]
"""Maps drafts and their reasoning to the reason why each is rejected, or to "" if it is accepted. Used for the verdicts of a second model."""


def preference_rows(
    index: Index,
    questions: Iterable[Question],
    settings: RetrieveSettings,
    models: Sequence[LanguageModel],
    checker: LanguageModel | None,
    hard_negatives: float,
    sizes: Collection[int],
) -> Iterator[PreferenceRow | Dropped]:
    """The rows of `questions` with contexts of `sizes` excerpts (of every size up to `settings.top_k` if no size is given).

    `models` write the reasoning. Without models, rules compose it (`compose_reason`), and rows whose context lacks a gold sentence or the
    answer are dropped, except those of `refusal_row`. The first model, or else the index's encoder, counts the tokens of a context.
    """
    by_rules = Reasoner(BY_RULES, lambda drafts: [compose_reason(draft, index.passages_of) for draft in drafts], False)
    reasoners = [Reasoner(model.name, partial(model_reasons, model=model)) for model in models] or [by_rules]

    find_contexts = context_finder(index, settings, models[0].count_tokens if models else index.count_tokens)
    check = None if checker is None else partial(check_by_model, model=checker)
    measure = SupportScorer(index).of_drafts
    yield from make_rows(questions, find_contexts, reasoners, measure, hard_negatives, check, sizes)


def make_rows(
    questions: Iterable[Question],
    find_contexts: FindContexts,
    reasoners: Sequence[Reasoner],
    measure: MeasureSupport,
    hard_negatives: float,
    check: Check | None,
    sizes: Collection[int],
) -> Iterator[PreferenceRow | Dropped]:
    """Yield the rows of each question from the smallest context to the largest, in the order of `questions`; Dropped for a row that cannot be made."""
    pools: defaultdict[str, Pool] = defaultdict(Pool)
    for group in draft_groups(questions, find_contexts, sizes):
        answerable = [draft for draft in group if isinstance(draft, Draft) and not context_lacks_answer(draft)]
        by_reasoner = [write_reasons(answerable, reasoner, measure, check) for reasoner in reasoners]
        for reasoned in chain.from_iterable(by_reasoner):
            if isinstance(reasoned.reason, str):
                pools[reasoned.draft.question.split].add(reasoned.draft, reasoned.reason)
        by_draft = iter(zip(*by_reasoner, strict=True))
        for draft in group:
            if isinstance(draft, Dropped):
                yield draft
                continue
            if context_lacks_answer(draft):
                yield refusal_row(draft)
                continue
            pool = pools[draft.question.split]
            for reasoner, reasoned in zip(reasoners, next(by_draft), strict=True):
                suffix = f"@{reasoner.name}" if len(reasoners) > 1 else ""
                yield make_pair(reasoned, suffix, reasoner.name, pool, hard_negatives)


def context_lacks_answer(draft: Draft) -> bool:
    """Whether a draft has a context and gold documents, but the context contains neither a gold document nor the answer.

    An answer that is not a span counts as missing.
    """
    question, excerpts = draft.question, draft.excerpts
    if not excerpts or not question.gold_sources or gold_share(question.gold_sources, excerpts):
        return False
    if not is_span(draft.answer):
        return True
    accepted = (draft.answer, *question.answers)
    return not any(holds_answer(with_title(excerpt), answer) for excerpt in excerpts for answer in accepted)


def refusal_row(draft: Draft) -> PreferenceRow:
    """A row whose chosen side says that no passage contains the answer, and whose rejected side gives the answer anyway."""
    negative = invented_negative(draft)
    row = preference_row(draft, "", REFUSAL, negative.text, BY_RULES, negative.name)
    return replace(row, answers=(NOT_FOUND,), kind="unanswerable")


def write_reasons(
    drafts: Sequence[Draft], reasoner: Reasoner, measure: MeasureSupport, check: Check | None
) -> list[ReasonedDraft]:
    """The reasoning by `reasoner` for each draft; if the reasoner is `checked`, Dropped for reasoning that the context does not support or `check` rejects."""
    reasons = reasoner.write(drafts)
    with_context = [n for n, reason in enumerate(reasons) if isinstance(reason, str) and drafts[n].excerpts]
    texts = [str(reasons[n]) for n in with_context]
    support = dict(zip(with_context, measure([drafts[n] for n in with_context], texts), strict=True))
    rejected: dict[int, Dropped] = {}
    if reasoner.checked:
        rejected = {n: Dropped(UNSUPPORTED) for n in with_context if not support[n].holds}
        if check is not None:
            selection = [n for n in with_context if n not in rejected]
            problems = check([drafts[n] for n in selection], [str(reasons[n]) for n in selection])
            rejected |= {n: Dropped(why) for n, why in zip(selection, problems, strict=True) if why}
    return [ReasonedDraft(drafts[n], rejected.get(n, reason), support.get(n)) for n, reason in enumerate(reasons)]


def make_pair(
    reasoned: ReasonedDraft, suffix: str, reasoner: str, pool: Pool, hard_negatives: float
) -> PreferenceRow | Dropped:
    """Chosen: the reasoning, then the gold answer; rejected: for the share `hard_negatives` of all pairs a hard negative, else the gold answer
    alone (GraphMPA, Appendix L). Dropped if there is no reasoning, if no hard negative can be made, or if the chosen side cannot be parsed.
    """
    draft, reason = reasoned.draft, reasoned.reason
    if isinstance(reason, Dropped):
        return reason
    seed = content_id("hard negatives", draft.question.id, str(len(draft.excerpts)), suffix)
    negative = HardNegative("", draft.answer)
    if random.Random(seed).random() < hard_negatives:
        made = make_hard_negative(draft, reason, pool)
        if made is None:
            return Dropped(NO_HARD_NEGATIVE)
        negative = made
    chosen = format_answer(reason, draft.answer)
    parsed = parse_answer(chosen)
    if not parsed.well_formed or parsed.answer != draft.answer:
        return Dropped(UNPARSEABLE)
    support = round(reasoned.support.normalised_similarity, 4) if reasoned.support else None
    return preference_row(draft, suffix, chosen, negative.text, reasoner, negative.name, support)


def preference_row(
    draft: Draft,
    suffix: str,
    chosen: str,
    rejected: str,
    reasoner: str,
    hard_negative: str = "",
    support: float | None = None,
) -> PreferenceRow:
    """The row of a draft, with the chosen and the rejected answer; `suffix` is the end of the row's id."""
    question, size = draft.question, len(draft.excerpts)
    return PreferenceRow(
        id=f"{question.id}#{size}{suffix}",
        prompt=answer_messages(question.text, draft.excerpts),
        chosen=chosen,
        rejected=rejected,
        question_id=question.id,
        question=question.text,
        answers=question.answers,
        kind=question.kind,
        split=question.split,
        context_size=size,
        context_ids=tuple(excerpt.id for excerpt in draft.excerpts),
        gold_in_context=gold_share(question.gold_sources, draft.excerpts),
        reasoner=reasoner,
        hard_negative=hard_negative,
        support=support,
    )


@dataclass(frozen=True)
class PreferenceModels:
    """SPECs of the models that write reasoning and of the one that checks it; their calls are stored in `ledger`, if there is one."""

    reasoners: Sequence[str]
    checker: str | None
    ledger: Path | None


def preference_run(
    index: Index,
    selection: QuestionSelection,
    settings: RetrieveSettings,
    models: PreferenceModels,
    open_model: OpenModel,
    *,
    hard_negatives: float,
    first: int | None,
) -> tuple[Iterable[PreferenceRow | Dropped], dict[str, str]]:
    """(rows, their origin) for the selected questions, with contexts of up to `settings.top_k` excerpts.

    Rows are made lazily; `first` limits the number of questions.
    UserError for gold documents that are not in the index, a share of hard negatives outside 0 to 1, a checker without reasoners,
    and two reasoners of one name.
    """
    if not 0 <= hard_negatives <= 1:
        found = f"hard negatives: {hard_negatives:g} of all rows"
        raise UserError(found, "a share from 0 to 1", "change the share of hard negatives")
    if models.checker and not models.reasoners:
        found = f"judge {models.checker} without a writer: reasoning by rules is not judged"
        raise UserError(found, "a model that writes the reasoning", "give --writer, or leave --judge out")
    distinct, duplicates = selection.read(index, first)
    reasoners = [open_model(spec, models.ledger) for spec in models.reasoners]
    names = [model.name for model in reasoners]
    if repeated := [name for name in names if names.count(name) > 1]:
        found, remedy = f"two writers are named {repeated[0]!r}", "leave one out, or serve it under another name"
        raise UserError(found, "different names, since the ids of rows end with them", remedy)
    judge = open_model(models.checker, models.ledger) if models.checker else None
    tokens = settings.max_context_tokens
    origin = {
        "Index": index.folder.absolute().name,
        "Questions": selection.name,
        "Contexts": f"{selection.sizes_up_to(settings.top_k)} excerpts, shuffled, retrieved by mode {settings.mode}"
        + (f", at most {tokens:,} tokens together" if tokens else ""),
        "Reasoning written by": ", ".join(names)
        or f"{BY_RULES}, from gold sentences and, if these lack the answer, a sentence of the context that contains it, each cited",
        "Reasoning checked by": judge.name if judge else SUPPORT_MEASURES if reasoners else "no model",
        "Share of hard negatives": f"{hard_negatives:g}",
    }
    rows = preference_rows(index, distinct, settings, reasoners, judge, hard_negatives, selection.sizes)
    if first is None:
        # Count rows, not questions: a whole batch of questions is read before a model is called.
        expected = len(distinct) * selection.contexts_per_question(settings.top_k) * max(1, len(reasoners))
        rows = track(rows, "rows", expected)
    return chain(duplicates, rows), origin
