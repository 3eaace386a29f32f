"""The indexes that one server serves, by name, and each of them as one caller sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from serve.http.routes.write_queue import WriteQueue
from serve.http.shared.access import Access
from serve.http.shared.errors import ApiError
from serve.live_index import Generation, LiveIndex

STORE = "vector_store_id"
"""The field that names a collection, as OpenAI's clients know it."""


@dataclass(frozen=True)
class Seen:
    """A collection as one caller sees it, in one generation: hold on to it for the length of a request."""

    name: str
    generation: Generation
    access: Access


class Collections:
    """The collections of one server; each is named as its folder."""

    def __init__(self, live: Mapping[str, LiveIndex], write_wait_s: float) -> None:
        self.live = dict(live)
        self.writing = {name: WriteQueue(each, write_wait_s) for name, each in live.items()}

    def names(self, access: Access) -> tuple[str, ...]:
        """Those that a caller sees, in the order in which they were given."""
        return access.seen_of(self.live)

    def named(self, access: Access, asked: str | None, place: str = "collection") -> str:
        """The collection that `asked` names, or the only one there is; `place` is the field that names it.

        ApiError 404 for any other name, with the same words whether it is not there or not for this caller; 400 where one of several
        (or of none) must be named.
        """
        known = self.names(access)
        if asked is None and len(known) == 1:
            return known[0]
        there = ", ".join(known) or "none"
        if asked is None:
            raise ApiError(400, "which_collection", f"say which collection is asked; there is: {there}", place)
        if asked not in known:
            words = place.removesuffix("_id").replace("_", " ")
            told = f"{words} {asked[:80]!r} is not served here; there is: {there}"
            raise ApiError(404, f"no_such_{words.replace(' ', '_')}", told, place)
        return asked

    async def seen(self, access: Access, asked: str | None, place: str = "collection") -> Seen:
        """The collection as the caller sees it now; ApiError as `named` raises it."""
        name = self.named(access, asked, place)
        generation = self.live[name].current
        if access.where:
            generation = await asyncio.to_thread(generation.only, access.where)
        return Seen(name, generation, access)
