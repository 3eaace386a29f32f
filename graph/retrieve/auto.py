"""`auto`: which mode a question is for, by a rule of thumb that can be read in a minute.

A question about the whole collection says so ("what themes recur", "overall", "summarise") and calls no document by name; all
others are for `walk`.
"""

import re
from dataclasses import replace

from graph.index import Index
from graph.retrieve.global_mode import retrieve_global
from graph.retrieve.hierarchy import retrieve_hierarchy
from graph.retrieve.query import Query
from graph.retrieve.settings import RetrieveSettings
from graph.retrieve.titles import named_documents
from graph.retrieve.walk import retrieve_walk
from graph.types import Evidence

_BROAD = re.compile(
    r"\b(themes|topics|trends|patterns|overview|overall|summar(?:y|i[sz]e)|in general|recurring"
    r"|(?:main|key) (?:ideas?|points?|findings|messages?|arguments?|lessons?|takeaways?))\b",
    re.IGNORECASE,
)


def retrieve_auto(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """What the mode for this question finds; the trace says which one, and why."""
    sign = broad_sign(index, query.text)
    if not sign:
        chosen, why, find = "walk", "the question asks for something specific", retrieve_walk
    elif query.model is not None:
        chosen, why, find = "global", f"“{sign}” asks about the whole, and there is a model", retrieve_global
    else:
        chosen, why, find = "hierarchy", f"“{sign}” asks about the whole", retrieve_hierarchy
    evidence = find(index, query, settings)
    return replace(evidence, trace=replace(evidence.trace, steps=(f"{chosen}, because {why}", *evidence.trace.steps)))


def broad_sign(index: Index, question: str) -> str:
    """The words by which a question asks about the whole collection; "" when it has none, or names a document."""
    found = _BROAD.search(question)
    return found[0] if found and not named_documents(index, question) else ""
