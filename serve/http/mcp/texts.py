"""Documents for clients of the protocol: their addresses, and their texts put together from passages."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, unquote

from graph.shared.types import Passage

SCHEME = "modegraph"
TEMPLATE = f"{SCHEME}://{{collection}}/{{+source}}"


def document_uri(collection: str, source: str) -> str:
    """The address of a document as a resource.

    >>> document_uri("handbook", "isles/tarn 2.md")
    'modegraph://handbook/isles/tarn%202.md'
    """
    return f"{SCHEME}://{quote(collection, safe='')}/{quote(source)}"


def read_uri(uri: str) -> tuple[str, str] | None:
    """The collection and the source that an address names; None for an address of another form.

    >>> read_uri("modegraph://handbook/isles/tarn%202.md"), read_uri("file:///etc/passwd")
    (('handbook', 'isles/tarn 2.md'), None)
    """
    head, _, rest = uri.partition("://")
    collection, _, source = rest.partition("/")
    return (unquote(collection), unquote(source)) if head == SCHEME and collection and source else None


def text_of(passages: Iterable[Passage]) -> str:
    """The text of a document from its passages in order: what two of them share stands once, a gap between two is line ends.

    >>> text_of([Passage("1", "s", "", 0, 0, 5, "ab cd"), Passage("2", "s", "", 1, 3, 6, "cde"), Passage("3", "s", "", 2, 7, 8, "f")])
    'ab cde\\nf'
    """
    parts: list[str] = []
    length = 0
    for each in passages:
        parts += ["\n" * (each.start - length), each.text[max(0, length - each.start) :]]
        length = max(length, each.end)
    return "".join(parts)
