"""Selectors choose the propositions to keep for a question (ToPG Eq. 2). All have the same signature."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import numpy as np

from graph.errors import UserError
from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity_to
from graph.retrieve.learned.light import Classifier, QuestionView, judge, open_selector, view_of
from graph.retrieve.parts.query import Query
from graph.text.prompting import quote, read_prompt
from graph.text.replies import ReplyModel, as_one_line, at_most, number_up_to, numbers_up_to, sound_items
from graph.types import Ints

Select = Callable[[Index, Query, Ints], Ints]
"""(index, query, rows of candidate propositions, best first) -> the selected rows, best first, each once; may be empty."""

MIN_SIMILARITY = 0.3
MIN_SHARE_OF_BEST = 0.6
MAX_TOKENS = 400


class Selection(ReplyModel):
    selected: Annotated[list[Annotated[int, number_up_to(999)]], sound_items(int), at_most("maxItems", 50)]


def find_selector(name: str, query: Query) -> Select:
    """The selector `name`: one of SELECTORS, or the folder or hub name of a trained one. UserError for `llm` without a model, and for an unknown name."""
    if name == "llm" and query.model is None:
        remedy = "give --model SPEC, or --selector threshold"
        raise UserError("selector = 'llm' without a model", "a language model", remedy)
    return SELECTORS[name] if name in SELECTORS else select_by_trained(open_selector(name))


def select_by_threshold(index: Index, query: Query, candidates: Ints) -> Ints:
    """Keep candidates whose normalised similarity is at least 0.3 and at least 0.6 times that of the best candidate; drop duplicates."""
    if len(candidates) == 0:
        return candidates
    cosines = index.data.proposition_vectors_ND[candidates] @ query.vector_D
    similarity_n = normalised_similarity_to(index, query.vector_D, cosines)
    return _distinct(candidates[similarity_n >= max(MIN_SIMILARITY, MIN_SHARE_OF_BEST * float(similarity_n.max()))])


def select_by_model(index: Index, query: Query, candidates: Ints) -> Ints:
    """Keep what the query's model chooses, in the model's order; without a model or a usable reply, what `select_by_threshold` keeps.

    Raises ModelUnavailable if the model does not answer.
    """
    if query.model is None or len(candidates) == 0:
        return select_by_threshold(index, query, candidates)
    candidates = _distinct(candidates)
    chosen = choices_of_model(index, query, [candidates])[0]
    return select_by_threshold(index, query, candidates) if chosen is None else chosen


def select_by_trained(selector: Classifier) -> Select:
    """A selector that keeps the candidates whose probability reaches the trained threshold, most probable first.

    It caches the QuestionView of every query and never empties the cache, so create a new selector for each question. It raises UserError for an index
    made with another encoder.
    """
    views: dict[str, QuestionView] = {}

    def select(index: Index, query: Query, candidates: Ints) -> Ints:
        if len(candidates) == 0:
            return candidates
        if query.text not in views:
            views[query.text] = view_of(index, query)
        candidates = _distinct(candidates)
        relevance_n = judge(selector, index, query, views[query.text], candidates)
        relevant_n = relevance_n >= selector.threshold
        order = np.lexsort((candidates[relevant_n], -relevance_n[relevant_n]))
        return candidates[relevant_n][order]

    return select


def choices_of_model(index: Index, query: Query, lists: Sequence[Ints]) -> list[Ints | None]:
    """The rows that the query's model selects from each list of distinct rows, in the model's order; None for an unusable reply.

    All lists go into one batch. ValueError without a model; ModelUnavailable if the model does not answer.
    """
    if query.model is None:
        raise ValueError(f"question {query.text!r}: no model, but choices_of_model needs one")
    prompts = [list_statements(query.text, [index.data.proposition_texts[row] for row in rows]) for rows in lists]
    numbers = numbers_up_to(max(map(len, lists), default=1))
    replies = query.model.ask(Selection, read_prompt("graph/select.txt"), prompts, MAX_TOKENS, selected=numbers)
    return [None if reply is None else _chosen(rows, reply) for rows, reply in zip(lists, replies, strict=True)]


def _chosen(candidates: Ints, reply: Selection) -> Ints:
    """The candidates that a reply selects by number (from 1), each once; other numbers are ignored."""
    valid = [number - 1 for number in reply.selected if 1 <= number <= len(candidates)]
    return _distinct(candidates[np.array(valid, np.int64)])


def list_statements(question: str, texts: Sequence[str]) -> str:
    """A question and numbered statements for a prompt, each quoted on a line of its own."""
    lines = [f"[{number}] {quote(text)}" for number, text in enumerate(texts, start=1)]
    return "\n".join([f"Question: {quote(question)}", "Statements:", *lines])


def further_queries(index: Index, query: Query, questions: Iterable[str], most: int) -> list[Query]:
    """Up to `most` distinct `questions`, which the model of `query` wrote, as queries for the same model."""
    texts = list(dict.fromkeys(text for text in map(as_one_line, questions) if text))[:most]
    if not texts:
        return []
    vectors_QD = index.encode_queries(texts)
    return [Query(text, vector_D, query.model) for text, vector_D in zip(texts, vectors_QD, strict=True)]


def _distinct(rows: Ints) -> Ints:
    """The distinct rows, in the order of their first appearance."""
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)]


SELECTORS: dict[str, Select] = {"threshold": select_by_threshold, "llm": select_by_model, "none": select_by_threshold}
"""`none` differs from `threshold` only in `hops`, where it turns off the trained hop."""
