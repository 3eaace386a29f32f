"""Questions about the whole collection, told by their words."""

import re

from graph.index.index import Index
from graph.retrieve.parts.titles import named_documents

_BROAD = re.compile(
    r"\b(themes|topics|trends|patterns|overview|overall|summar(?:y|i[sz]e)|in general|recurring"
    r"|(?:main|key) (?:ideas?|points?|findings|messages?|arguments?|lessons?|takeaways?))\b",
    re.IGNORECASE,
)


def broad_sign(index: Index, question: str) -> str:
    """The words by which a question asks about the whole collection; "" when it has none, or names a document."""
    found = _BROAD.search(question)
    return found[0] if found and not named_documents(index, question) else ""
