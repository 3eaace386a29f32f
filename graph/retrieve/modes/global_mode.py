"""`global` (ToPG §2.3.3): a broad question seen from many sides, answered community by community.

Anchors (anchors.py) → communities that cover them (cover.py) → a model says what each contributes → the best contributions.
Without a model the question is not broken up, and the communities' own passages are the evidence, taken in turn so that each
side is heard.

Legend: P passages, N propositions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated

import numpy as np
from pydantic import Field

from graph.index.index import Index
from graph.layers.communities import nested_communities
from graph.retrieve.parts.caller import ModelGone
from graph.retrieve.parts.gather import expand_rows
from graph.retrieve.parts.near import nearest
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.selection.anchors import Anchors, collect_anchors
from graph.retrieve.selection.cover import MIN_NODES, candidates, greedy_cover
from graph.retrieve.selection.select import find_selector, list_statements
from graph.shared.types import Evidence, Finding, Floats, Ints, Scored, Trace
from graph.text.prompting import quote, read_prompt
from graph.text.structured import ReplyModel, Sentence, at_most, plain, sound_items

MAX_QUESTIONS = 10
MAX_COMMUNITY_TOKENS, MAX_TOKENS_IN_ALL = 2_000, 16_000
"""Tokens of statements that are read of one community, and of all of them, for one question."""
MAX_REPLY_TOKENS = 600


class SubQuestions(ReplyModel):
    questions: Annotated[list[Sentence], sound_items(str), at_most("maxItems", MAX_QUESTIONS)]


class Contribution(ReplyModel):
    answer: Annotated[str, at_most("maxLength", 500)]
    score: int = Field(ge=0, le=100)


@dataclass(frozen=True)
class Side:
    """What is read of one community: its propositions nearest to the question, and the passages they stand in; best first."""

    propositions: Ints
    passages: Ints


def retrieve_global(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages of the communities around the question's anchors; with a model, what each community contributes, too."""
    select = find_selector(settings.selector, query)
    anchors, findings, stopped = Anchors(), [], ""
    sides: list[Side] = []
    try:
        collect_anchors(index, query, sub_questions(index, query), select, anchors, settings.suggestions)
        sides = choose_sides(index, query, anchors.rows)
        findings = contributions(index, query, sides)
    except ModelGone as gone:
        stopped = str(gone)
        sides = sides or choose_sides(index, query, anchors.rows)
    heard = [side for _, side in findings] or sides
    places = take_turns([side.passages.tolist() for side in heard])
    near, _ = nearest(index.data.passage_vectors_PD, query.vector_D, settings.top_k)
    rows = list(dict.fromkeys([*places, *near.tolist()]))[: settings.top_k]
    rounds = " + ".join(map(str, anchors.per_round))
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(row), 1 / place) for place, row in enumerate(rows, start=1)),
        paths=tuple(_told(row, heard) for row in rows),
        findings=tuple(finding for finding, _ in findings),
        trace=Trace(
            "global",
            (
                f"{len(anchors.rows)} anchors ({rounds})",
                f"{len(sides)} communities, {len(findings)} with a contribution",
            ),
            stopped=stopped,
        ),
    )


def sub_questions(index: Index, query: Query) -> list[Query]:
    """The sides of the question as its model names them; the question itself where there is no model or no usable reply."""
    if query.model is None:
        return [query]
    asked = f"Question: {quote(query.text)}"
    reply = query.model.ask(SubQuestions, read_prompt("graph/decompose.txt"), [asked], MAX_REPLY_TOKENS)[0]
    texts = [text for text in map(plain, reply.questions if reply is not None else ()) if text]
    if not texts:
        return [query]
    texts = list(dict.fromkeys(texts))[:MAX_QUESTIONS]
    vectors_QD = index.encode_queries(texts)
    return [Query(text, each_D, query.model) for text, each_D in zip(texts, vectors_QD, strict=True)]


def choose_sides(index: Index, query: Query, anchors: Sequence[int]) -> list[Side]:
    """The communities that cover the anchors, in the order chosen, as far as the token budget goes."""
    around, propositions = np.array(anchors, np.int64), len(index.data.proposition_ids)
    nested = nested_communities(index.hub_graph_VV, index.communities_V, around, MIN_NODES, index.settings.seed)
    rows_C, proposition_CN = candidates(nested, propositions)
    count_tokens = query.model.count_tokens if query.model is not None else index.count_tokens
    cosines_N = index.data.proposition_vectors_ND @ query.vector_D
    read: dict[int, Side] = {}

    def cost(row: int) -> int:
        members = nested.members[row]
        read[row], tokens = read_side(index, members[members < propositions], cosines_N, count_tokens)
        return tokens

    rows = greedy_cover(around, nested, rows_C, proposition_CN, cost, MAX_TOKENS_IN_ALL)
    return [read[row] for row in rows]


def read_side(index: Index, members: Ints, cosines_N: Floats, count_tokens: Callable[[str], int]) -> tuple[Side, int]:
    """The members nearest to the question, MAX_COMMUNITY_TOKENS at most, and their tokens; one too long is skipped."""
    kept, tokens = [], 0
    for row in members[np.argsort(-cosines_N[members], kind="stable")].tolist():
        length = count_tokens(index.data.proposition_texts[row])
        if tokens + length <= MAX_COMMUNITY_TOKENS:
            kept.append(row)
            tokens += length
    rows = np.array(kept, np.int64)
    _, passages = expand_rows(index.proposition_passage_NP, rows)
    return Side(rows, np.array(list(dict.fromkeys(passages.tolist())), np.int64)), tokens


def contributions(index: Index, query: Query, sides: Sequence[Side]) -> list[tuple[Finding, Side]]:
    """What each side contributes as the model says, best first; sides that it finds nothing in are left out."""
    if query.model is None:
        return []
    texts = index.data.proposition_texts
    users = [list_statements(query.text, [texts[row] for row in side.propositions]) for side in sides]
    replies = query.model.ask(Contribution, read_prompt("graph/facet.txt"), users, MAX_REPLY_TOKENS)
    found = [
        (Finding(query.text, plain(reply.answer), _ids(index, side), reply.score / 100), side)
        for reply, side in zip(replies, sides, strict=True)
        if reply is not None and reply.score > 0 and plain(reply.answer)
    ]
    return sorted(found, key=lambda pair: -pair[0].score)


def take_turns(lists: Sequence[Sequence[int]]) -> list[int]:
    """The first of each list, then the second of each, and so on; each item once.

    >>> take_turns([[1, 2, 3], [4, 1], [5]])
    [1, 4, 5, 2, 3]
    """
    turns = (item for turn in zip_longest(*lists) for item in turn if item is not None)
    return list(dict.fromkeys(turns))


def _ids(index: Index, side: Side) -> tuple[str, ...]:
    return tuple(index.data.passage_ids[row] for row in side.passages)


def _told(row: int, sides: Sequence[Side]) -> tuple[str, ...]:
    for number, side in enumerate(sides, start=1):
        if row in side.passages:
            return (f"community {number} of {len(sides)} around the question's anchors",)
    return ("near to the question by itself",)
