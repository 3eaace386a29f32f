"""Preference rows (GraphMPA §3.2, Eq. 7): every question over contexts C_0 (none), C_1, …, C_N, each one excerpt longer.

C_k are the k best excerpts of the question's own retrieval, best first. A gold passage that retrieval missed is never put
in: training sees the contexts that serving will see. Such rows keep their reasoning, without the citation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from data_synth.reasons import compose_reason, model_reasons
from data_synth.types import Draft, Dropped, PreferenceRow
from graph.answer import answer_messages, format_answer, parse_answer, quote
from graph.context import build_context, token_budget
from graph.errors import UserError
from graph.ids import content_id
from graph.questions import SPLITS, Question
from graph.retrieve import RetrieveSettings, retrieve_many
from graph.types import Excerpt, LanguageModel

if TYPE_CHECKING:
    from graph.index import Index

NO_ANSWER = "the question has no gold answer"
UNPARSEABLE = "the chosen answer does not parse to the gold one"
DUPLICATE = "an exact duplicate"
BY_RULES = "rules"
QUESTIONS_AT_ONCE = 32
SOURCES_NAMED = 5

FindContexts = Callable[[Sequence[str]], Sequence[tuple[Excerpt, ...]]]
"""Questions to the excerpts that retrieval found for each, best first."""

WriteReasons = Callable[[Sequence[Draft]], list[str | Dropped]]
"""Drafts to their reasonings, in order."""


def preference_rows(
    index: Index, questions: Iterable[Question], settings: RetrieveSettings, model: LanguageModel | None
) -> Iterator[PreferenceRow | Dropped]:
    """The rows of `questions` over contexts of up to `settings.top_k` excerpts; `model` writes the reasoning, or rules.

    Tokens of a context are counted by that model, or by the index's encoder. UserError when a budget is too small for any.
    """

    def find_contexts(asked: Sequence[str]) -> list[tuple[Excerpt, ...]]:
        budget = token_budget(settings.max_context_tokens, index.count_tokens if model is None else model.count_tokens)
        return [build_context(found, settings.top_k, budget) for found in retrieve_many(index, asked, settings)]

    def write_reasons(drafts: Sequence[Draft]) -> list[str | Dropped]:
        if model is None:
            return [compose_reason(draft, index.passages_of) for draft in drafts]
        return model_reasons(drafts, model)

    yield from make_rows(questions, find_contexts, write_reasons, BY_RULES if model is None else model.name)


def make_rows(
    questions: Iterable[Question],
    find_contexts: FindContexts,
    write_reasons: WriteReasons,
    reasoner: str,
) -> Iterator[PreferenceRow | Dropped]:
    """Yield the rows of each question by growing context, in the order of `questions`; what was lost comes as Dropped."""
    seen: set[str] = set()
    for group in _groups(questions, QUESTIONS_AT_ONCE):
        contexts = find_contexts([question.text for question in group])
        drafts = [
            draft for question, found in zip(group, contexts, strict=True) for draft in make_drafts(question, found)
        ]
        whole = [draft for draft in drafts if isinstance(draft, Draft)]
        reasons = iter(write_reasons(whole))
        for draft in drafts:
            made = finish_row(draft, next(reasons), reasoner) if isinstance(draft, Draft) else draft
            if isinstance(made, PreferenceRow):
                key = content_id(*(turn.content for turn in made.prompt), made.chosen, made.rejected)
                made = Dropped(DUPLICATE) if key in seen else made
                seen.add(key)
            yield made


def make_drafts(question: Question, excerpts: Sequence[Excerpt]) -> list[Draft | Dropped]:
    """One draft for each context: none of the excerpts, the first, the first two, … all."""
    sizes = range(len(excerpts) + 1)
    answer = quote(question.answers[0]) if question.answers else ""
    if not answer:
        return [Dropped(NO_ANSWER) for _ in sizes]
    return [Draft(question, answer, tuple(excerpts[:size])) for size in sizes]


def finish_row(draft: Draft, reason: str | Dropped, reasoner: str) -> PreferenceRow | Dropped:
    """Chosen: the reasoning, then the gold answer; rejected: the answer alone (GraphMPA, Appendix L)."""
    if isinstance(reason, Dropped):
        return reason
    chosen = format_answer(reason, draft.answer)
    parsed = parse_answer(chosen)
    if not parsed.well_formed or parsed.answer != draft.answer:
        return Dropped(UNPARSEABLE)
    question, size = draft.question, len(draft.excerpts)
    return PreferenceRow(
        id=f"{question.id}#{size}",
        prompt=answer_messages(question.text, draft.excerpts),
        chosen=chosen,
        rejected=draft.answer,
        question_id=question.id,
        question=question.text,
        answers=question.answers,
        kind=question.kind,
        split=question.split,
        context_size=size,
        context_ids=tuple(excerpt.id for excerpt in draft.excerpts),
        gold_in_context=gold_share(question.gold_sources, draft.excerpts),
        reasoner=reasoner,
    )


def gold_share(gold_sources: Sequence[str], excerpts: Sequence[Excerpt]) -> float:
    """Share of the gold documents with a passage among `excerpts`; 0 when none is named. Summaries count for none."""
    gold = set(gold_sources)
    return len(gold & {excerpt.source for excerpt in excerpts}) / len(gold) if gold else 0.0


def pick_questions(questions: Sequence[Question], splits: Sequence[str]) -> list[Question]:
    """The questions of `splits` (of all, if none is named), in order; UserError for an unknown or an empty choice."""
    for split in splits:
        if split not in SPLITS:
            raise UserError(f"--split {split}", f"one of {', '.join(SPLITS)}", "mend the option")
    picked = [question for question in questions if not splits or question.split in splits]
    if not picked:
        raise UserError(
            f"--split {' '.join(splits)}: no such questions", "at least one question", "choose another split"
        )
    return picked


def check_gold(questions: Iterable[Question], sources: Collection[str]) -> None:
    """UserError naming gold documents that the index does not hold."""
    gold = dict.fromkeys(
        source
        for question in questions
        for source in (*question.gold_sources, *(quoted.source for quoted in question.evidence))
    )
    missing = [source for source in gold if source not in sources]
    if missing:
        named = ", ".join(repr(source) for source in missing[:SOURCES_NAMED])
        more = f" and {len(missing) - SOURCES_NAMED:,} more" if len(missing) > SOURCES_NAMED else ""
        raise UserError(
            f"{len(missing):,} gold documents are not in the index: {named}{more}",
            "an index of the documents that the questions were written for",
            "index those documents, or mend gold_ids and evidence",
        )


def _groups(questions: Iterable[Question], size: int) -> Iterator[list[Question]]:
    group: list[Question] = []
    for question in questions:
        group.append(question)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
