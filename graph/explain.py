"""Why a question retrieves a passage, or does not: its rank in each mode, the words and names it shares, and the links to it in `hops`.

Each mode runs as usual but ranks more passages; a mode whose order depends on how many it ranks is not run beyond its limit. Links of
`hops` are computed from the MAX_LINKING_PASSAGES best passages that may link to the passage, not only from the few whose links `hops` follows.
Legend: P passages, N propositions, E entities, S passages with possible links, X links."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from graph.errors import UserError
from graph.index.index import Index, row_of
from graph.retrieve.hops.mode import MAX_MENTIONS, SEEDS, links_from, raise_links
from graph.retrieve.modes.baselines import DEPTH
from graph.retrieve.modes.paths import EXPLORE_PASSAGES
from graph.retrieve.modes.statements import INITIAL_PROPOSITIONS
from graph.retrieve.parts.mentions import keywords_of
from graph.retrieve.parts.passage_scores import OwnScores, passages_of, score_alone
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.ranking import expand_rows, rank_of, top_rows
from graph.retrieve.parts.words import best_terms, known_terms
from graph.retrieve.retrieve import retrieve, with_pages
from graph.shared.ids import shown_id
from graph.shared.modes import MODES, Mode
from graph.store.columns.moved import take_rows
from graph.text.bm25 import content_terms
from graph.types import Evidence, Floats, Ints, Passage, Scored


@dataclass(frozen=True)
class ModeRank:
    """The rank of the passage in one mode.

    `rank` counts passages from 1; `rank`, `score` and `path` are missing if the mode does not rank the passage. `ranked` is the
    number of passages ranked at the searched depth, `found` the number that the question retrieves, with the scores `first_score` and
    `last_score` of the first and the last. `steps` describe the retrieval in words.
    """

    mode: Mode
    rank: int | None
    score: float | None
    ranked: int
    found: int
    first_score: float | None
    last_score: float | None
    path: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Clue:
    """A word or name of the question, how many passages of the index contain it, and whether the explained passage does."""

    text: str
    passages: int
    held: bool


@dataclass(frozen=True)
class StatedProposition:
    """A proposition of the passage: its cosine to the question, and its rank among all propositions."""

    id: str
    text: str
    cosine: float
    rank: int


@dataclass(frozen=True)
class Lead:
    """The best link of `hops` from another passage to the explained one, through a `proposition` of the other passage that mentions `entity`.

    `entity` is a title of the explained passage's document (`by_title`) or is also mentioned in the explained passage.

    `rank` is the other passage's rank by its score without links; `followed` says whether `hops` follows links from that rank. `worth`
    is the score that the link gives the explained passage, on the scale of `Explanation.own_score`.
    """

    passage: Passage
    rank: int
    proposition: str
    entity: str
    by_title: bool
    worth: float
    followed: bool


@dataclass(frozen=True)
class Explanation:
    """Why a question retrieves a passage, or does not.

    `standings` are the ranks from `ranks_in_modes`, the one in `mode` first; `before` are the retrieved passages that `mode` ranks before the explained one.
    `words` (without function words) and `names` are those of the question, the rarest first; `propositions` are the passage's propositions
    nearest to the question. `own_rank` and `own_score` are the passage's rank and score in `hops` without links; `lift` is the part of that
    score that comes from the question's words, and `lifted_by` are the words that contribute most to it (largest first; without function
    words and the words of a name that is a document's title); `leads` are the best links to the passage.
    """

    question: str
    passage: Passage
    mode: Mode
    top_k: int
    standings: tuple[ModeRank, ...]
    before: tuple[Scored[Passage], ...]
    words: tuple[Clue, ...]
    names: tuple[Clue, ...]
    propositions: tuple[StatedProposition, ...]
    own_rank: int
    own_score: float
    lift: float
    lifted_by: tuple[str, ...]
    leads: tuple[Lead, ...]


SHOWN_PROPOSITIONS, SHOWN_LEADS = 3, 3


def explain_passage(index: Index, question: str, passage: str, settings: RetrieveSettings) -> Explanation:
    """Why `question` retrieves a passage (`passage` as in `find_passage`) with `settings`, or does not; no language model is called.

    UserError for an empty question, for a passage that is not in the index, and for one that the conditions exclude.
    """
    explained = _with_page(index, find_passage(index, passage))
    scope = index.where(settings.conditions)
    row = row_of(scope.data, "passage", explained.id)
    if row is None:
        found = f"passage {passage!r}: its document, {explained.source!r}, does not meet {', '.join(settings.where)}"
        remedy = "leave out the condition that excludes it"
        raise UserError(found, "a passage that meets the conditions", remedy)
    ranks = list(ranks_in_modes(index, question, explained.id, settings))
    query = Query(question.strip(), scope.encode_queries([question.strip()])[0])
    alone = score_alone(scope, query, score_all=True)
    own, retrieved = ranks[0]
    return Explanation(
        question=query.text,
        passage=explained,
        mode=settings.mode,
        top_k=settings.top_k,
        standings=tuple(each for each, _ in ranks),
        before=tuple(retrieved if own.rank is None else retrieved[: own.rank - 1]),
        words=words_of(scope, query.text, row),
        names=names_of(scope, query.text, row),
        propositions=nearest_propositions(scope, query, row),
        own_rank=rank_of(alone.own_P, row),
        own_score=float(alone.own_P[row]),
        lift=float(alone.lift_P[row]),
        lifted_by=best_terms(scope, alone.terms, np.array([row]))[0] if alone.lift_P[row] > 0 else (),
        leads=leads_to(scope, query, alone, row, SHOWN_LEADS),
    )


def _with_page(index: Index, row: int) -> Passage:
    """The passage in a row, with its page."""
    return with_pages(Evidence("", (Scored(index.passage(row), 0.0),)), index.data).passages[0].item


def words_of(index: Index, question: str, row: int) -> tuple[Clue, ...]:
    """The terms of the question, as in mode `lexical`, without function words; the rarest first."""
    block_WP, texts = index.data.term_count_WP, index.data.term_texts
    passages = {texts[term]: take_rows(block_WP, np.array([term])).indices for term in known_terms(index, question)}
    return rarest_first({term: passages.get(term, np.zeros(0, np.int64)) for term in content_terms(question)}, row)


def names_of(index: Index, question: str, row: int) -> tuple[Clue, ...]:
    """The entities of the index that occur in the question; the rarest first."""
    passages = {}
    for entity in keywords_of(index, question).tolist():
        _, propositions = expand_rows(index.entity_proposition_EN, np.array([entity]))
        passages[index.entity_name(entity)] = np.unique(expand_rows(index.proposition_passage_NP, propositions)[1])
    return rarest_first(passages, row)


def rarest_first(passages: dict[str, Ints], row: int) -> tuple[Clue, ...]:
    """Clues from texts and the passages that contain them, for the passage in `row`; the rarest first."""
    clues = [Clue(text, len(rows), row in rows) for text, rows in passages.items()]
    return tuple(sorted(clues, key=lambda clue: clue.passages))


def nearest_propositions(index: Index, query: Query, row: int) -> tuple[StatedProposition, ...]:
    """The passage's propositions that are nearest to the question."""
    data = index.data
    cosines_N = np.asarray(data.proposition_vectors_ND @ query.vector_D, np.float32)
    _, stated = expand_rows(data.passage_proposition_PN, np.array([row]))
    nearest = stated[top_rows(cosines_N[stated], SHOWN_PROPOSITIONS)].tolist()
    ids, texts = data.proposition_ids, data.proposition_texts
    return tuple(
        StatedProposition(ids[each], texts[each], float(cosines_N[each]), rank_of(cosines_N, each)) for each in nearest
    )


SEARCH_DEPTHS = (100, 10_000)
"""Depths to search in turn: the first reaches most explained passages, the second is the limit of a search."""
DEPTHS_OF_MODES: dict[Mode, int] = {
    "hybrid": DEPTH,
    "paths": EXPLORE_PASSAGES,
    "statements": INITIAL_PROPOSITIONS,
    "topics": INITIAL_PROPOSITIONS,
}


def ranks_in_modes(
    index: Index, question: str, passage_id: str, settings: RetrieveSettings
) -> Iterator[tuple[ModeRank, Sequence[Scored[Passage]]]]:
    """The passage's rank in the mode of `settings`, then in the others, each with the passages that the question retrieves.

    `plan` is not among the others: without a model it equals `hops`.
    """
    others = (mode for mode in MODES if mode not in (settings.mode, "plan"))
    for mode in (settings.mode, *others):
        mode_settings = settings.model_copy(update={"mode": mode})
        found = retrieve(index, question, mode_settings)
        yield rank_in_mode(found, search_deeper(index, found, passage_id, mode_settings), passage_id), found.passages


def search_deeper(index: Index, found: Evidence, passage_id: str, settings: RetrieveSettings) -> Evidence:
    """The evidence, retrieved again at greater depths until it includes the passage or the greatest depth is reached."""
    nodes = max(len(index.data.passage_ids) + len(index.data.summary_ids), len(index.data.proposition_ids))
    depth = settings.top_k
    for deeper in (DEPTHS_OF_MODES[settings.mode],) if settings.mode in DEPTHS_OF_MODES else SEARCH_DEPTHS:
        if position_in(found, passage_id) is not None or depth >= nodes:
            break
        if deeper > depth:
            depth = deeper
            found = retrieve(index, found.query, settings.model_copy(update={"top_k": depth}))
    return found


def position_in(evidence: Evidence, passage_id: str) -> int | None:
    """The position of a passage in the evidence, from 0; None if it is missing."""
    return next((position for position, each in enumerate(evidence.passages) if each.item.id == passage_id), None)


def rank_in_mode(found: Evidence, deep: Evidence, passage_id: str) -> ModeRank:
    """The passage's rank in `deep`, with the counts and scores of `found`, the evidence that the question retrieves."""
    position = position_in(deep, passage_id)
    return ModeRank(
        mode=cast(Mode, found.trace.mode),
        rank=None if position is None else position + 1,
        score=None if position is None else deep.passages[position].score,
        ranked=len(deep.passages),
        found=len(found.passages),
        first_score=found.passages[0].score if found.passages else None,
        last_score=found.passages[-1].score if found.passages else None,
        path=deep.paths[position] if position is not None and deep.paths else (),
        steps=found.trace.steps,
    )


MAX_LINKING_PASSAGES = 50
"""The maximum number of passages whose links are computed: those with the best scores without links."""


def leads_to(index: Index, query: Query, alone: OwnScores, row: int, count: int) -> tuple[Lead, ...]:
    """The `count` best links to the passage in `row`, at most one from each passage."""
    seeds_S = linking_passages(index, row, alone.own_P)
    leads = filter(None, (_best_lead(index, query, alone, row, int(seed)) for seed in seeds_S))
    return tuple(sorted(leads, key=lambda lead: (-lead.worth, lead.rank))[:count])


def linking_passages(index: Index, row: int, own_P: Floats) -> Ints:
    """Passages of other documents that mention a rare entity that this passage also mentions, or a title of its document if this is the document's
    best passage, to which links by title lead.

    At most MAX_LINKING_PASSAGES, those with the best scores without links.
    """
    data = index.data
    document = int(data.passage_document_P[row])
    first, last = passages_of(data.passage_document_P, document)
    is_best = row == first + int(own_P[first:last].argmax())
    title_E = np.flatnonzero(is_best * np.diff(data.entity_document_EU[:, [document]].indptr))
    _, stated = expand_rows(data.passage_proposition_PN, np.array([row]))
    _, mentioned_E = expand_rows(data.proposition_entity_NE, stated)
    rare_E = mentioned_E[np.diff(index.entity_proposition_EN.indptr)[mentioned_E] <= MAX_MENTIONS]
    _, propositions = expand_rows(index.entity_proposition_EN, np.union1d(title_E, rare_E))
    passages = np.unique(expand_rows(index.proposition_passage_NP, np.unique(propositions))[1])
    others: Ints = passages[data.passage_document_P[passages] != document]
    return others[top_rows(own_P[others], MAX_LINKING_PASSAGES)]


def _best_lead(index: Index, query: Query, alone: OwnScores, row: int, seed: int) -> Lead | None:
    links = raise_links(links_from(alone, np.array([seed])), alone, query.text)
    to_row_X = np.flatnonzero(links.to_passage_X == row)
    if not len(to_row_X):
        return None
    best = int(to_row_X[top_rows(links.worth_X[to_row_X], 1)[0]])
    rank, proposition = rank_of(alone.own_P, seed), int(links.proposition_X[best])
    return Lead(
        passage=_with_page(index, seed),
        rank=rank,
        proposition=index.data.proposition_texts[proposition],
        entity=index.entity_name(int(links.entity_X[best]), [proposition]),
        by_title=bool(links.title_X[best]),
        worth=float(links.worth_X[best]),
        followed=rank <= SEEDS,
    )


MAX_LISTED = 8


def find_passage(index: Index, name: str) -> int:
    """The row of the passage whose id is `name`, of the only passage of the document `name`, or of the only passage whose id starts with `name`.

    UserError if there is no such passage.
    """
    prefix = name.strip().casefold()
    ids = index.data.passage_ids
    rows = [row for row, identity in enumerate(ids) if identity.startswith(prefix)] if prefix else []
    inside = index.passages_of(name)
    if len(rows) == 1 and (not inside or ids[rows[0]] == prefix):
        return rows[0]
    if len(inside) == 1:
        return int(index.rows_of(inside)[0])
    if inside:
        found = f"passage {name!r}: a document of {len(inside):,} passages"
        listed = [f"{shown_id(each.id)} ({each.start}–{each.end})" for each in inside[:MAX_LISTED]]
        raise UserError(found, _one_of(listed, len(inside)), "give the id of a passage")
    if rows:
        found = f"passage {name!r}: {len(rows):,} ids start with it"
        some = [ids[row] for row in rows[:MAX_LISTED]]
        raise UserError(found, _one_of(some, len(rows)), "give more digits")
    raise UserError(
        f"passage {name!r}: not in {index.folder}",
        "the id of a passage, or its first digits",
        "`modegraph ask` shows the ids of the passages that it finds; give a document's source instead of an id to list its passages",
    )


def _one_of(some: Sequence[str], count: int) -> str:
    more = f" and {count - len(some):,} more" if count > len(some) else ""
    return f"one of {', '.join(some)}{more}"
