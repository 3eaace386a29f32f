"""Why a question finds a passage, or does not: its rank in each mode, the words and names that it shares, and what leads to it in `hops`.

Each mode is run as for any question, only deeper; one whose ranking would change with the depth is looked at no deeper than it ranks by
itself. Links of `hops` are worked out from every passage that could have one, not only from the few that are best by themselves.
Legend: P passages, N propositions, E entities, S passages that could lead, X links."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast, get_args

import numpy as np

from graph.errors import UserError
from graph.index.index import Index, row_of
from graph.retrieve.hops.mode import MAX_MENTIONS, SEEDS, links_from, raise_by_titles, raise_by_words
from graph.retrieve.modes.paths import EXPLORE_PASSAGES
from graph.retrieve.modes.statements import INITIAL
from graph.retrieve.parts.mentions import keywords_of
from graph.retrieve.parts.passage_scores import OwnScores, score_alone
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.ranking import expand_rows, rank_of, top_rows
from graph.retrieve.parts.words import best_terms, known_terms
from graph.retrieve.retrieve import retrieve
from graph.shared.ids import shown_id
from graph.shared.modes import Mode
from graph.store.columns.moved import taken
from graph.text.bm25 import terms_of
from graph.types import Evidence, Floats, Ints, Passage, Scored


@dataclass(frozen=True)
class ModeRank:
    """Where the passage stands in one mode.

    `rank` counts passages from 1; it, `score` and `path` are missing where the mode does not rank the passage. `ranked` is how many
    passages it ranked, as deep as was looked; `found` how many the question gets, `first_score` and `last_score` those of the first
    and the last of these. `steps` tell what the mode did.
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
    """A word or a name of the question, whether the passage has it, and how many passages of the index do."""

    text: str
    passages: int
    held: bool


@dataclass(frozen=True)
class StatedProposition:
    """A proposition of the passage: its cosine to the question, and how many of all propositions lie at least as near."""

    id: str
    text: str
    cosine: float
    rank: int


@dataclass(frozen=True)
class Lead:
    """The best link of `hops` from one other passage: its proposition mentions `entity`, which the explained one is called, or says more of.

    `rank` is where that passage stands by itself; `followed` whether that is high enough for its links to be followed. `worth` is what
    the link makes of the explained passage, on the scale of the scores of `hops`.
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
    """Why a question finds a passage, or does not.

    `standings` come mode by mode, that of `mode` first; `before` are the passages that the question gets in `mode` and that stand
    before the explained one. `words` and `names` are those of the question, the rarest first; `propositions` the nearest to it of the
    passage; `own_rank` and `own_score` are what `hops` gives the passage by itself, of which `lift` is by the question's words, those in
    `lifted_by` (the first most; words of a name that calls a document are not among them); `leads` are the best links to it.
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
    """Why `question` finds the passage whose id begins with `passage`, or does not, by `settings`; no model is asked.

    UserError for an empty question, for a passage that the index does not have, and for one that the conditions leave out.
    """
    explained = index.passage(find_passage(index, passage))
    scope = index.where(settings.conditions)
    row = next((row for row, each in enumerate(scope.data.passage_ids) if each == explained.id), None)
    if row is None:
        raise UserError(
            f"passage {passage!r}: its document, {explained.source!r}, does not meet {', '.join(settings.where)}",
            "a passage that the conditions let through",
            "leave that condition out",
        )
    found = list(ranks_in_modes(index, question, explained.id, settings))
    query = Query(question.strip(), scope.encode_queries([question.strip()])[0])
    alone = score_alone(scope, query, of_all=True)
    standing, gets = found[0]
    return Explanation(
        question=query.text,
        passage=explained,
        mode=settings.mode,
        top_k=settings.top_k,
        standings=tuple(each for each, _ in found),
        before=tuple(gets if standing.rank is None else gets[: standing.rank - 1]),
        words=words_of(scope, query.text, row),
        names=names_of(scope, query.text, row),
        propositions=nearest_propositions(scope, query, row),
        own_rank=rank_of(alone.own_P, row),
        own_score=float(alone.own_P[row]),
        lift=float(alone.lift_P[row]),
        lifted_by=best_terms(scope, alone.terms, np.array([row]))[0] if alone.lift_P[row] > 0 else (),
        leads=leads_to(scope, query, alone, row, SHOWN_LEADS),
    )


def words_of(index: Index, question: str, row: int) -> tuple[Clue, ...]:
    """The terms of the question, as `lexical` reads them; the rarest first."""
    block_WP, texts = index.data.term_count_WP, index.data.term_texts
    passages = {
        texts[term]: taken(block_WP, np.array([term])).indices.astype(np.int64) for term in known_terms(index, question)
    }
    return rarest_first({term: passages.get(term, np.zeros(0, np.int64)) for term in terms_of(question)}, row)


def names_of(index: Index, question: str, row: int) -> tuple[Clue, ...]:
    """The entities of the index that stand in the question; the rarest first."""
    passages = {}
    for entity in keywords_of(index, question).tolist():
        _, propositions = expand_rows(index.entity_proposition_EN, np.array([entity]))
        passages[index.data.entity_texts[entity]] = np.unique(
            expand_rows(index.proposition_passage_NP, propositions)[1]
        )
    return rarest_first(passages, row)


def rarest_first(passages: dict[str, Ints], row: int) -> tuple[Clue, ...]:
    """Texts with the passages that have them, as clues to the passage in `row`."""
    clues = [Clue(text, len(rows), row in rows) for text, rows in passages.items()]
    return tuple(sorted(clues, key=lambda clue: clue.passages))


def nearest_propositions(index: Index, query: Query, row: int) -> tuple[StatedProposition, ...]:
    """The passage's propositions that lie nearest to the question."""
    data = index.data
    cosines_N = np.asarray(data.proposition_vectors_ND @ query.vector_D, np.float32)
    _, stated = expand_rows(data.passage_proposition_PN, np.array([row]))
    nearest = stated[top_rows(cosines_N[stated], SHOWN_PROPOSITIONS)].tolist()
    return tuple(
        StatedProposition(
            data.proposition_ids[each], data.proposition_texts[each], float(cosines_N[each]), rank_of(cosines_N, each)
        )
        for each in nearest
    )


SEARCH_DEPTHS = (100, 10_000)
"""First as deep as most passages stand that anybody asks for, then as deep as a search goes."""
DEPTHS_OF_MODES: dict[Mode, int] = {"paths": EXPLORE_PASSAGES, "statements": INITIAL, "topics": INITIAL}


def ranks_in_modes(
    index: Index, question: str, passage_id: str, settings: RetrieveSettings
) -> Iterator[tuple[ModeRank, Sequence[Scored[Passage]]]]:
    """The passage's standing in the mode of `settings` and then in the others, each with the passages that the question gets.

    `plan` is left out: without a model it is `hops`.
    """
    others = (mode for mode in get_args(Mode) if mode not in (settings.mode, "plan"))
    for mode in (settings.mode, *others):
        asked = settings.model_copy(update={"mode": mode})
        found = retrieve(index, question, asked)
        yield rank_in_mode(found, look_deeper(index, found, passage_id, asked), passage_id), found.passages


def look_deeper(index: Index, found: Evidence, passage_id: str, settings: RetrieveSettings) -> Evidence:
    """What was found, or what is found as deep as it takes to meet the passage, if the mode ranks it at all."""
    nodes = max(len(index.data.passage_ids) + len(index.data.summary_ids), len(index.data.proposition_ids))
    depth = settings.top_k
    for deeper in (DEPTHS_OF_MODES[settings.mode],) if settings.mode in DEPTHS_OF_MODES else SEARCH_DEPTHS:
        if place_in(found, passage_id) is not None or depth >= nodes:
            break
        if deeper > depth:
            depth = deeper
            found = retrieve(index, found.query, settings.model_copy(update={"top_k": depth}))
    return found


def place_in(evidence: Evidence, passage_id: str) -> int | None:
    """The place of a passage among those of an evidence, from 0."""
    return next((place for place, each in enumerate(evidence.passages) if each.item.id == passage_id), None)


def rank_in_mode(found: Evidence, deep: Evidence, passage_id: str) -> ModeRank:
    """Where the passage stands in `deep`, beside what the question gets, `found`."""
    place = place_in(deep, passage_id)
    return ModeRank(
        mode=cast(Mode, found.trace.mode),
        rank=None if place is None else place + 1,
        score=None if place is None else deep.passages[place].score,
        ranked=len(deep.passages),
        found=len(found.passages),
        first_score=found.passages[0].score if found.passages else None,
        last_score=found.passages[-1].score if found.passages else None,
        path=deep.paths[place] if place is not None and deep.paths else (),
        steps=found.trace.steps,
    )


COULD_LEAD = 50
"""Passages whose links are worked out: the best by themselves of those that could lead."""


def leads_to(index: Index, query: Query, alone: OwnScores, row: int, count: int) -> tuple[Lead, ...]:
    """The links to the passage in `row` that are worth most, at most `count`, the best from each passage."""
    seeds_S = could_lead(index, row, alone.own_P)
    found = [_best_lead(index, query, alone, row, int(seed)) for seed in seeds_S]
    leads = [lead for lead in found if lead is not None]
    return tuple(sorted(leads, key=lambda lead: (-lead.worth, lead.rank))[:count])


def could_lead(index: Index, row: int, own_P: Floats) -> Ints:
    """Passages of other documents with an entity that calls this one's document by name, or a rare one that this one has, too."""
    data = index.data
    document = int(data.passage_document_P[row])
    calling_E = np.flatnonzero(np.diff(data.entity_document_EU[:, [document]].indptr))
    _, stated = expand_rows(data.passage_proposition_PN, np.array([row]))
    _, mentioned_E = expand_rows(data.proposition_entity_NE, stated)
    rare_E = mentioned_E[np.diff(index.entity_proposition_EN.indptr)[mentioned_E] <= MAX_MENTIONS]
    _, propositions = expand_rows(index.entity_proposition_EN, np.union1d(calling_E, rare_E))
    passages = np.unique(expand_rows(index.proposition_passage_NP, np.unique(propositions))[1])
    others: Ints = passages[data.passage_document_P[passages] != document]
    return others[top_rows(own_P[others], COULD_LEAD)]


def _best_lead(index: Index, query: Query, alone: OwnScores, row: int, seed: int) -> Lead | None:
    found = links_from(alone, np.array([seed]))
    links = raise_by_titles(index, raise_by_words(found, alone.lift_P), query.text, alone.own_P)
    mine_X = np.flatnonzero(links.to_passage_X == row)
    if not len(mine_X):
        return None
    best = int(mine_X[top_rows(links.worth_X[mine_X], 1)[0]])
    rank = rank_of(alone.own_P, seed)
    return Lead(
        passage=index.passage(seed),
        rank=rank,
        proposition=index.data.proposition_texts[int(links.proposition_X[best])],
        entity=index.data.entity_texts[int(links.entity_X[best])],
        by_title=bool(links.title_X[best]),
        worth=float(links.worth_X[best]),
        followed=rank <= SEEDS,
    )


MOST_LISTED = 8


def find_passage(index: Index, given: str) -> int:
    """The row of the passage whose id is `given` or alone begins so, or of the only one of the document `given`; UserError that says how to name one."""
    sought = given.strip().casefold()
    ids = index.data.passage_ids
    rows = [row for row, identity in enumerate(ids) if identity.startswith(sought)] if sought else []
    if len(rows) == 1:
        return rows[0]
    if rows:
        some = [ids[row] for row in rows[:MOST_LISTED]]
        raise UserError(
            f"passage {given!r}: {len(rows):,} ids begin so", _one_of(some, len(rows)), "give more of its id"
        )
    inside = index.passages_of(given)
    only = row_of(index.data, "passage", inside[0].id) if len(inside) == 1 else None
    if only is not None:
        return only
    if inside:
        found = f"passage {given!r}: a document of {len(inside):,} passages"
        raise UserError(
            found, _one_of([_described(each) for each in inside[:MOST_LISTED]], len(inside)), "give the id of a passage"
        )
    raise UserError(
        f"passage {given!r}: not in {index.folder}",
        "the id of a passage, or its first digits",
        "`modegraph ask` shows the ids of what it finds; the source of a document lists its passages",
    )


def _described(passage: Passage) -> str:
    return f"{shown_id(passage.id)} ({passage.start}–{passage.end})"


def _one_of(some: Sequence[str], count: int) -> str:
    more = f" and {count - len(some):,} more" if count > len(some) else ""
    return f"one of {', '.join(some)}{more}"
