"""The pages of what was found, from the metadata of its documents."""

import json
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from graph.shared.pages import page_at
from graph.shared.types import Evidence, Passage, Proposition, Scored, Span
from graph.store.data import IndexData


def with_pages(evidence: Evidence, data: IndexData) -> Evidence:
    """The evidence with the page of each passage and span; itself where no document that it names has pages."""
    found = _sources(evidence)
    paged = {source: told for source in found if page_at(told := _metadata(data, source), 0) is not None}
    if not paged:
        return evidence

    def at(place: Passage | Span) -> int | None:
        return page_at(paged.get(place.source, {}), place.start)

    def placed(proposition: Proposition) -> Proposition:
        return replace(proposition, spans=tuple(replace(span, page=at(span)) for span in proposition.spans))

    passages = tuple(Scored(replace(each.item, page=at(each.item)), each.score) for each in evidence.passages)
    propositions = tuple(Scored(placed(each.item), each.score) for each in evidence.propositions)
    return replace(evidence, passages=passages, propositions=propositions)


def _sources(evidence: Evidence) -> Iterable[str]:
    spans = (span.source for found in evidence.propositions for span in found.item.spans)
    return {*(found.item.source for found in evidence.passages), *spans}


def _metadata(data: IndexData, source: str) -> dict[str, Any]:
    """The metadata of a document; {} where the index, or this part of it, has none of that source."""
    row = bisect_left(range(len(data.document_sources)), source, key=lambda each: data.document_sources[each])
    if row == len(data.document_sources) or data.document_sources[row] != source:
        return {}
    return dict(json.loads(data.document_metadata[row]))
