"""The explanation of one passage, put together: its standings, its clues, its propositions, its leads.

Legend: P passages, N propositions, E entities.
"""

import numpy as np

from graph.explain.find import find_passage
from graph.explain.leads import leads_to
from graph.explain.standing import standings
from graph.explain.types import Clue, Explanation, Stated
from graph.index.index import Index
from graph.retrieve import RetrieveSettings
from graph.retrieve.parts.gather import expand_rows
from graph.retrieve.parts.keywords import keywords_of
from graph.retrieve.parts.passage_scores import score_alone
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import rank_of, top_rows
from graph.retrieve.parts.words import best_terms, known_terms
from graph.shared.errors import UserError
from graph.shared.types import Ints
from graph.store.columns.moved import taken
from graph.text.bm25 import terms_of

STATED, LEADS = 3, 3


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
    found = list(standings(index, question, explained.id, settings))
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
        propositions=nearest_stated(scope, query, row),
        own_rank=rank_of(alone.own_P, row),
        own_score=float(alone.own_P[row]),
        lift=float(alone.lift_P[row]),
        lifted_by=best_terms(scope, alone.terms, np.array([row]))[0] if alone.lift_P[row] > 0 else (),
        leads=leads_to(scope, query, alone, row, LEADS),
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


def nearest_stated(index: Index, query: Query, row: int) -> tuple[Stated, ...]:
    """The passage's propositions that lie nearest to the question."""
    data = index.data
    cosines_N = np.asarray(data.proposition_vectors_ND @ query.vector_D, np.float32)
    _, stated = expand_rows(data.passage_proposition_PN, np.array([row]))
    nearest = stated[top_rows(cosines_N[stated], STATED)].tolist()
    return tuple(
        Stated(
            data.proposition_ids[each], data.proposition_texts[each], float(cosines_N[each]), rank_of(cosines_N, each)
        )
        for each in nearest
    )
