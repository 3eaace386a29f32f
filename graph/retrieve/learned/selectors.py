"""Selectors: which of the suggested propositions are worth keeping for a question (ToPG Eq. 2). One signature for all of them."""

from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np

from graph.errors import UserError
from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity_to
from graph.retrieve.learned.light import Classifier, QuestionView, judge, open_selector, view_of
from graph.retrieve.parts.query import Query
from graph.text.prompting import quote, read_prompt
from graph.text.replies import ReplyModel, at_most, one_of, sound_items
from graph.types import Ints

Select = Callable[[Index, Query, Ints], Ints]
"""Rows of candidate propositions, best first -> the rows kept, in that order, each once. An empty choice is a choice."""

MIN_NEARNESS = 0.3
MIN_SHARE_OF_BEST = 0.6
MAX_TOKENS = 400


class Selection(ReplyModel):
    selected: Annotated[list[Annotated[int, one_of(999)]], sound_items(int), at_most("maxItems", 50)]


def find_selector(name: str, query: Query) -> Select:
    """The selector called `name`, for one question: one of SELECTORS, or a trained one's folder or hub name.

    UserError when it needs a model and the question comes without one, and for a folder without a selector.
    """
    if name == "llm" and query.model is None:
        raise UserError(
            "selector = 'llm' without a model", "a model to ask", "give --model SPEC, or --selector threshold"
        )
    return SELECTORS[name] if name in SELECTORS else select_by_trained(open_selector(name))


def select_by_threshold(index: Index, query: Query, candidates: Ints) -> Ints:
    """Keep candidates whose nearness is at least 0.3 and at least 0.6 of the best candidate's; duplicates once."""
    if len(candidates) == 0:
        return candidates
    near = normalised_similarity_to(
        index, query.vector_D, index.data.proposition_vectors_ND[candidates] @ query.vector_D
    )
    return _distinct(candidates[near >= max(MIN_NEARNESS, MIN_SHARE_OF_BEST * float(near.max()))])


def select_by_model(index: Index, query: Query, candidates: Ints) -> Ints:
    """Keep what the query's model chooses, in its order; numbers that were not offered are skipped.

    Where its reply cannot be used, the threshold chooses. Raises ModelGone when the model does not answer.
    """
    if query.model is None or len(candidates) == 0:
        return select_by_threshold(index, query, candidates)
    candidates = _distinct(candidates)
    chosen = choices_of_model(index, query, [candidates])[0]
    return select_by_threshold(index, query, candidates) if chosen is None else chosen


def select_by_trained(selector: Classifier) -> Select:
    """Keeps the candidates whose probability reaches the trained selector's threshold, most probable first.

    What it knows of a query is made once, and lasts as long as it: make one for each question. UserError, when asked, for an
    index of another encoder.
    """
    views: dict[str, QuestionView] = {}

    def select(index: Index, query: Query, candidates: Ints) -> Ints:
        if len(candidates) == 0:
            return candidates
        if query.text not in views:
            views[query.text] = view_of(index, query)
        candidates = _distinct(candidates)
        relevance_n = judge(selector, index, query, views[query.text], candidates)
        kept_n = relevance_n >= selector.threshold
        order = np.lexsort((candidates[kept_n], -relevance_n[kept_n]))
        return candidates[kept_n][order]

    return select


def choices_of_model(index: Index, query: Query, lists: Sequence[Ints]) -> list[Ints | None]:
    """What the query's model keeps of each list of candidates (each row once), in its order; None for an unusable reply.

    All lists are asked together. ValueError without a model; ModelGone when it does not answer.
    """
    if query.model is None:
        raise ValueError("a question without a model")
    shown = [list_statements(query.text, [index.data.proposition_texts[row] for row in rows]) for rows in lists]
    replies = query.model.ask(Selection, read_prompt("graph/select.txt"), shown, MAX_TOKENS)
    return [None if reply is None else _chosen(rows, reply) for rows, reply in zip(lists, replies, strict=True)]


def _chosen(candidates: Ints, reply: Selection) -> Ints:
    """The candidates that a reply numbers from 1, each once."""
    offered = [number - 1 for number in reply.selected if 1 <= number <= len(candidates)]
    return _distinct(candidates[np.array(offered, np.int64)])


def list_statements(question: str, texts: Sequence[str]) -> str:
    """A question and numbered statements as a prompt shows them, each on one line of quoted data."""
    lines = [f"[{number}] {quote(text)}" for number, text in enumerate(texts, start=1)]
    return "\n".join([f"Question: {quote(question)}", "Statements:", *lines])


def _distinct(rows: Ints) -> Ints:
    """The rows without repetitions, in the order of their first appearance."""
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)]


SELECTORS: dict[str, Select] = {"threshold": select_by_threshold, "llm": select_by_model}
