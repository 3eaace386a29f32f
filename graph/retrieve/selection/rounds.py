"""`local` with a model (ToPG §2.3.2, Algorithm 1): it prunes what the walk suggests, says when that is enough, and what to look for next.

Each round, every open question suggests from what the last round kept; the selector prunes; the model answers the first question
from all that is kept, or names the next ones. The first answer ends the rounds, so none is ever replaced.

Legend: P passages, N propositions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field

from graph.index.index import Index
from graph.index.nearness import nearness_to
from graph.prompt.answer import is_no_answer
from graph.retrieve.parts.caller import ModelGone
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import SuggestSettings
from graph.retrieve.parts.suggest import suggest
from graph.retrieve.selection.select import Select, list_statements
from graph.shared.types import Floats, Ints
from graph.text.prompting import read_prompt
from graph.text.structured import ReplyModel, Sentence, at_most, plain, sound_items

MAX_ROUNDS = 3
MAX_NEXT_QUESTIONS = 3
MAX_STATEMENTS_SHOWN = 60
NEAREST = 5
"""Propositions nearest to an open question that are offered beside those of the walk: its answer may stand elsewhere."""
MAX_TOKENS = 500


class Verdict(ReplyModel):
    answer: Sentence
    next_questions: Annotated[list[Sentence], sound_items(str), at_most("maxItems", MAX_NEXT_QUESTIONS)] = Field(
        default_factory=list
    )


@dataclass
class Rounds:
    """What the rounds came to. `kept` are rows of propositions in the order in which they were kept."""

    kept: list[int]
    answer: str = ""
    steps: list[str] = field(default_factory=list)
    stopped: str = ""


def run_rounds(
    index: Index,
    query: Query,
    candidates: Ints,
    near_N: Floats,
    select: Select,
    count: int,
    settings: SuggestSettings,
) -> Rounds:
    """Up to three rounds from what is selected of `candidates`, each open question suggesting `count` propositions a round."""
    found = Rounds([])
    asked = [(query, near_N)]
    try:
        pool = select(index, query, candidates)
        found.kept += pool.tolist()
        found.steps.append(f"{len(pool)} propositions to start from")
        for number in range(1, MAX_ROUNDS + 1):
            pool = _explore(index, asked, pool, found.kept, select, count, settings)
            found.kept += pool.tolist()
            found.steps.append(f"round {number}: {len(pool)} more propositions kept")
            verdict = _evaluate(index, query, found.kept)
            answer = plain(verdict.answer) if verdict is not None else ""
            if not is_no_answer(answer):
                found.answer = answer
                found.steps.append(f"round {number}: answered")
                return found
            if number < MAX_ROUNDS and verdict is not None:
                asked = _next_queries(index, query, verdict.next_questions) or asked
                found.steps.append("asks next: " + " · ".join(each.text for each, _ in asked))
            pool = pool if len(pool) else np.array(found.kept, np.int64)
        found.steps.append(f"no answer in {MAX_ROUNDS} rounds")
    except ModelGone as gone:
        found.stopped = str(gone)
    return found


def _explore(
    index: Index,
    asked: Sequence[tuple[Query, Floats]],
    pool: Ints,
    kept: Sequence[int],
    select: Select,
    count: int,
    settings: SuggestSettings,
) -> Ints:
    """What the open questions find around `pool` and nearest to themselves, as the selector keeps it; new rows, each once."""
    known = set(kept)
    new: dict[int, None] = {}
    for query, near_N in asked:
        around = suggest(index, near_N, pool, count + len(known), settings).rows
        nearest = top_rows(near_N, count)
        if len(around):
            nearest = nearest[:NEAREST]
        candidates = [row for row in dict.fromkeys([*around.tolist(), *nearest.tolist()]) if row not in known]
        new |= dict.fromkeys(select(index, query, np.array(candidates[: count + NEAREST], np.int64)).tolist())
    return np.array(list(new), np.int64)


def _evaluate(index: Index, query: Query, kept: Sequence[int]) -> Verdict | None:
    """The model's verdict on what is kept, the latest of it if there is too much to show; None if it gave no usable one."""
    if query.model is None:
        return None
    texts = [index.data.proposition_texts[row] for row in kept[-MAX_STATEMENTS_SHOWN:]]
    return query.model.ask(
        Verdict, read_prompt("graph/evaluate.txt"), [list_statements(query.text, texts)], MAX_TOKENS
    )[0]


def _next_queries(index: Index, query: Query, questions: Sequence[str]) -> list[tuple[Query, Floats]]:
    """The questions to go on with, and how near all propositions are to them."""
    texts = list(dict.fromkeys(text for text in map(plain, questions) if text))[:MAX_NEXT_QUESTIONS]
    if not texts:
        return []
    vectors_QD = index.encode_queries(texts)
    return [
        (Query(text, vector_D, query.model), nearness_to(index, vector_D, index.data.proposition_vectors_ND @ vector_D))
        for text, vector_D in zip(texts, vectors_QD, strict=True)
    ]
