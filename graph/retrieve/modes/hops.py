"""`hops`: multi-hop retrieval without a model, our own; made for small encoders.

A question about Port Ellery's ferry's builder names the ferry; the builder is named only in the ferry's passage. So:
1. Every passage is scored by its own nearness (graph/index/nearness.py) and its best proposition's, and higher if it has the question's words (words.py) or the question
   calls its document by name. A word counts once: those of a name that calls a document are the name's.
2. The best of them are seeds, from which links lead on (links.py), and better to documents whose titles say what was found with words of the question (graph/retrieve/hop/titled.py).
3. A passage is ranked by the better of what it is worth itself and the best link to it. All scores are on the scale of nearness.
4. With a trained hop (`selector`), the best of them and what their entities lead to are ranked anew (graph/retrieve/hop/judge.py), by log odds.

Legend: P passages, N propositions.
"""

from dataclasses import dataclass
from functools import partial

from graph.index.index import Index
from graph.retrieve.hop.judge import Judged, find_hop, judge_hops
from graph.retrieve.hop.titled import raise_by_titles
from graph.retrieve.parts.links import SEEDS, Links, find_links, raise_by_words, reach, tell_path
from graph.retrieve.parts.passage_scores import ByItself, LookAt, look_at_passages, score_alone
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.parts.words import best_terms, tell_terms
from graph.shared.types import Evidence, Floats, Scored, Trace


@dataclass(frozen=True)
class Followed:
    """What a question is to each passage, by itself and by the best link; `look` fills in the scores of passages that are UNSEEN."""

    alone: ByItself
    links: Links
    reached_P: Floats
    led: dict[int, int]
    look: LookAt


def follow(index: Index, query: Query) -> Followed:
    """Steps 1 to 3."""
    alone = score_alone(index, query)
    look = partial(look_at_passages, index, alone, query.vector_D)
    found = find_links(index, alone.own_P, alone.scores_N, query.vector_D, look)
    links = raise_by_titles(index, raise_by_words(found, alone.lift_P), query.text, alone.own_P)
    return Followed(alone, links, *reach(alone.own_P, links), look)


def retrieve_hops(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages, each with the path that led to it. UserError for a trained hop of another encoder."""
    hop = find_hop(settings.selector)
    found = follow(index, query)
    alone, links, reached_P, led = found.alone, found.links, found.reached_P, found.led
    judged = Judged(reached_P, {}, 0)
    if hop is not None:
        judged = judge_hops(hop, index, query, alone, reached_P, found.look)
    rows = top_rows(judged.scores_P, settings.top_k)
    called = {document: name for name, document in alone.named}
    steps = (
        f"{len(alone.named)} documents named by the question",
        f"{len(alone.terms)} of its words are in the index and in no such name",
        f"{len(links.worth_X):,} links from {SEEDS} passages",
        *([f"{judged.rows:,} ways to passages judged by a trained hop"] if hop is not None else []),
    )
    paths = []
    for row, words in zip(rows.tolist(), best_terms(index, alone.terms, rows), strict=True):
        way = judged.ways.get(row)
        path = tell_path(index, row, links, led, called) if way is None else tell_way(index, *way)
        paths.append((*path, tell_terms(words)) if alone.lift_P[row] > 0 else path)
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(row), float(judged.scores_P[row])) for row in rows.tolist()),
        paths=tuple(paths),
        trace=Trace("hops", steps),
    )


def tell_way(index: Index, said: int, entity: int) -> tuple[str, ...]:
    """How a passage was reached by a way of a trained hop, in words."""
    data = index.data
    mentioned = f"mentions “{data.entity_texts[entity]}”"
    return (f"“{data.proposition_texts[said]}”", mentioned, "and with it the question leads here")
