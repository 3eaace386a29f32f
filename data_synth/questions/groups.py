"""Passages of 3 to 5 articles that belong together (HLG §5.2, steps 1 and 2): by a topic or an entity that they share."""

from collections.abc import Iterator
from random import Random

import numpy as np

from data_synth.questions.mentions import Mentions, columns_of
from graph.index.index import Index
from graph.shared.types import Passage

MIN_ARTICLES, MAX_ARTICLES = 3, 5
MAX_SHARING = 20
"""An entity in more documents than these ties no group together."""


def article_groups(index: Index, seed: int) -> Iterator[tuple[Passage, ...]]:
    """Groups in an order that `seed` gives, one passage an article, no two groups alike.

    Each grows from the articles of one topic or of one entity, by articles that share an entity with it.
    """
    mentions, rng = Mentions(index), Random(seed)
    seen: set[frozenset[int]] = set()
    seeds = [*_by_topic(index), *_by_entity(mentions)]
    for passages in rng.sample(seeds, len(seeds)):
        group = _grown(mentions, rng.sample(passages, len(passages)))
        if len(group) >= MIN_ARTICLES and frozenset(group) not in seen:
            seen.add(frozenset(group))
            yield tuple(index.passage(row) for row in group)


def _by_topic(index: Index) -> Iterator[list[int]]:
    for topic in range(len(index.data.topic_ids)):
        propositions = np.array(columns_of(index.data.topic_proposition_KN, topic), np.int64)
        yield sorted(set(index.proposition_passage_NP[propositions, :].indices.tolist()))


def _by_entity(mentions: Mentions) -> Iterator[list[int]]:
    return (sorted(mentions.passages_telling(key)) for key in mentions.shared_entities(MAX_SHARING))


def _grown(mentions: Mentions, passages: list[int]) -> list[int]:
    """One passage of each article, up to MAX_ARTICLES; where these are too few, with what shares an entity with them."""
    of_document = mentions.index.data.passage_document_P
    group: dict[int, int] = {}
    for passage in passages:
        group.setdefault(int(of_document[passage]), passage)
    waiting = list(group.values())
    while waiting and len(group) < MIN_ARTICLES:
        for key in sorted(mentions.linking_entities(waiting.pop(0))):
            for passage in sorted(mentions.passages_telling(key)):
                if int(of_document[passage]) not in group:
                    group[int(of_document[passage])] = passage
                    waiting.append(passage)
    return list(group.values())[:MAX_ARTICLES]
