"""The inputs of preference and response rows: selected questions, and growing contexts C_0 ⊂ C_1 ⊂ … for each.

C_k consists of the k best excerpts that retrieval finds for the question, shuffled so that their order does not give the answer away. A gold
passage that retrieval missed is never added: training uses the same contexts as serving.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from data_synth.rows import Draft, Dropped, sample_rows
from graph.answer.citations import check_citations
from graph.answer.context import build_context, token_budget
from graph.answer.prompt import answer_messages
from graph.documents.questions import SPLITS, Question, check_gold, read_questions
from graph.errors import UserError
from graph.retrieve.parts.diversity import distinctive_words, diverse_rows
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve_many
from graph.shared.ids import content_id
from graph.text.prompting import quote
from graph.types import Excerpt

if TYPE_CHECKING:
    from graph.index.index import Index

NO_PASSAGES = "retrieval finds no passage, or fewer than --context-size"
NO_ANSWER = "the question has no gold answer"
CITES = "the gold answer contains a number in brackets, which would count as a citation"
NEAR_DUPLICATE = "the question is a near duplicate of another one with the same answer"
DUPLICATE_THRESHOLD = 0.1
"""τ of graph/retrieve/parts/diversity.py for questions: about one word in twenty may differ, but no number, name or negation."""
QUESTIONS_PER_GROUP = 32

FindContexts = Callable[[Sequence[str]], Sequence[tuple[Excerpt, ...]]]
"""Maps questions to the excerpts that retrieval finds for each, best first."""


def context_finder(index: Index, settings: RetrieveSettings, count_tokens: Callable[[str], int]) -> FindContexts:
    """Retrieval by `settings`, up to `settings.top_k` excerpts per question. UserError when the budget is too small for any excerpt."""
    budget = token_budget(settings.max_context_tokens, count_tokens)

    def find_contexts(questions: Sequence[str]) -> list[tuple[Excerpt, ...]]:
        return [
            build_context(evidence, settings.top_k, budget) for evidence in retrieve_many(index, questions, settings)
        ]

    return find_contexts


def draft_groups(
    questions: Iterable[Question], find_contexts: FindContexts, sizes: Collection[int]
) -> Iterator[list[Draft | Dropped]]:
    """The drafts of groups of QUESTIONS_PER_GROUP questions; the drafts of each question are in order of context size (see `make_drafts`)."""
    remaining = iter(questions)
    while group := list(islice(remaining, QUESTIONS_PER_GROUP)):
        contexts = find_contexts([question.text for question in group])
        yield [
            draft
            for question, excerpts in zip(group, contexts, strict=True)
            for draft in make_drafts(question, excerpts, sizes)
        ]


def make_drafts(question: Question, excerpts: Sequence[Excerpt], sizes: Collection[int] = ()) -> list[Draft | Dropped]:
    """One draft per context (the first excerpt, the first two, …, all), shuffled by the question's id and the context's size; with `sizes`, only these sizes.

    Size 0, a question without passages, must be given explicitly: the prompt asks for an answer from passages. The result is one Dropped if there is no
    context of these sizes, and one per context if the question has no answer or one that would count as a citation.
    """
    used_sizes = [size for size in range(len(excerpts) + 1) if (size in sizes if sizes else size)]
    if not used_sizes:
        return [Dropped(NO_PASSAGES)]
    answer = quote(question.answers[0]) if question.answers else ""
    if not answer or check_citations(answer, 0).removed:
        return [Dropped(CITES if answer else NO_ANSWER) for _ in used_sizes]
    return [Draft(question, answer, shuffled(question.id, excerpts[:size])) for size in used_sizes]


def shuffled(key: str, excerpts: Sequence[Excerpt]) -> tuple[Excerpt, ...]:
    """The excerpts in an order determined by `key` and their number."""
    order = list(excerpts)
    random.Random(content_id("order of passages", key, str(len(order)))).shuffle(order)
    return tuple(order)


def task_of(draft: Draft) -> str:
    """The question with its numbered passages, as in the prompt of the draft's row."""
    return answer_messages(draft.question.text, draft.excerpts)[-1].content


def gold_share(gold_sources: Sequence[str], excerpts: Sequence[Excerpt]) -> float:
    """Share of the gold documents that at least one excerpt comes from; 0 without gold documents. Excerpts of summaries do not count."""
    gold = set(gold_sources)
    return len(gold & {excerpt.source for excerpt in excerpts}) / len(gold) if gold else 0.0


@dataclass(frozen=True)
class QuestionSelection:
    """The questions to use: those of `file` in `splits` (empty: all), `limit` of them sampled by the seed (None: all), and their context sizes (empty: all)."""

    file: Path
    splits: Sequence[str]
    limit: int | None
    seed: int
    sizes: Sequence[int]

    def read(self, index: Index, first: int | None) -> tuple[list[Question], list[Dropped]]:
        """The questions (only the first `first`, if given) without near duplicates, and one Dropped for each duplicate.

        UserError for gold documents that are not in the index, or as in `pick_questions`.
        """
        picked = pick_questions(read_questions(self.file), self.splits)
        distinct, duplicates = without_near_duplicates(sample_rows(picked, self.limit, self.seed)[:first])
        check_gold(distinct, frozenset(index.sources()))
        return distinct, duplicates

    @property
    def name(self) -> str:
        """The file's name and how many of its questions are sampled, for dataset cards."""
        return self.file.name + (f", a sample of {self.limit:,}" if self.limit else "")

    def contexts_per_question(self, largest: int) -> int:
        """The largest number of contexts that one question can have."""
        return len(self.sizes) or largest

    def sizes_up_to(self, largest: int) -> str:
        """The sizes of contexts as a text such as "1 to 5", for dataset cards."""
        return ", ".join(map(str, self.sizes)) or f"1 to {largest}"


def without_near_duplicates(questions: Sequence[Question]) -> tuple[list[Question], list[Dropped]]:
    """The questions without near duplicates (the first of each group stays), and one Dropped for each removed question.

    Near duplicates have the same gold answers, nearly the same words, and the same distinctive ones (numbers, names, negations) in the same order.
    """
    groups: defaultdict[tuple[tuple[str, ...], ...], list[int]] = defaultdict(list)
    for number, question in enumerate(questions):
        groups[distinctive_words(question.text), question.answers].append(number)
    distinct: list[int] = []
    for numbers in groups.values():
        rows = diverse_rows([questions[number].text for number in numbers], DUPLICATE_THRESHOLD)
        distinct += [numbers[row] for row in rows]
    duplicates = [Dropped(NEAR_DUPLICATE)] * (len(questions) - len(distinct))
    return [questions[number] for number in sorted(distinct)], duplicates


def pick_questions(questions: Sequence[Question], splits: Sequence[str]) -> list[Question]:
    """The questions of `splits` (all, if none is given), in order; UserError for an unknown split or an empty result."""
    for split in splits:
        if split not in SPLITS:
            raise UserError(f"--split {split}", f"one of {', '.join(SPLITS)}", "fix the option")
    picked = [question for question in questions if not splits or question.split in splits]
    if not picked:
        found = f"--split {' '.join(splits)}: no such questions"
        raise UserError(found, "at least one question of the splits", "choose another split")
    return picked
