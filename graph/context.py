"""From evidence to what a prompt quotes: numbered excerpts, best first, that a citation can be traced back from."""

from graph.types import Evidence, Excerpt, Passage, Proposition, Scored, Summary


def build_context(evidence: Evidence, limit: int) -> tuple[Excerpt, ...]:
    """At most `limit` excerpts: passages and summaries by score; propositions stand for their passages where a mode ranks them."""
    ranked: list[tuple[float, Excerpt]] = [(found.score, _of_summary(found)) for found in evidence.summaries]
    if evidence.propositions:
        titles = {found.item.source: found.item.title for found in evidence.passages}
        ranked += [(found.score, _of_proposition(found.item, titles)) for found in evidence.propositions]
    else:
        ranked += [(found.score, of_passage(found.item)) for found in evidence.passages]
    ranked.sort(key=lambda pair: -pair[0])
    return tuple(excerpt for _, excerpt in ranked[:limit])


def of_passage(passage: Passage) -> Excerpt:
    """A passage as an excerpt."""
    return Excerpt(passage.id, passage.title, passage.text, passage.source, passage.start, passage.end)


def _of_proposition(proposition: Proposition, titles: dict[str, str]) -> Excerpt:
    place = proposition.spans[0]
    return Excerpt(proposition.id, titles.get(place.source, ""), proposition.text, place.source, place.start, place.end)


def _of_summary(found: Scored[Summary]) -> Excerpt:
    return Excerpt(found.item.id, "Summary", found.item.text, members=found.item.members)
