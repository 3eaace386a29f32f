"""What one caller may do here: its scopes, the collections that it sees, and the documents in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from starlette.requests import HTTPConnection

from graph.index.filters import Condition

Scope = Literal["read", "write", "metrics"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
FIELD = "modegraph.access"
"""Where the scope of an ASGI request has it, once its key is known."""


@dataclass(frozen=True)
class Access:
    """The rights of a key, which is called `key`; of `collections` (None: of all) it sees the documents that meet every condition."""

    key: str = ""
    key_id: str = ""
    scopes: frozenset[Scope] = frozenset(SCOPES)
    collections: frozenset[str] | None = None
    where: tuple[Condition, ...] = ()

    def seen_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the collections that it sees.

        >>> Access(collections=frozenset({"b", "x"})).seen_of(["a", "b"])
        ('b',)
        """
        return tuple(name for name in names if self.collections is None or name in self.collections)


EVERYTHING = Access()
NOTHING = Access(scopes=frozenset(), collections=frozenset())


def access_of(request: HTTPConnection) -> Access:
    """The rights of whoever sent a request."""
    found: Access = request.scope[FIELD]
    return found
