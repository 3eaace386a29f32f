"""The rows of an index: its one source of truth. Arrays, graph blocks and vectors are derived from them (graph/build/derive.py).

They are in index.sqlite (graph/store/sqlite.py) or in PostgreSQL (graph/postgres/store.py).

Tables: documents → passages → occurrences (one proposition read at one place) → mentions (an entity in an occurrence), its topics
and its facts. A passage in `quarantine` could not be read. Propositions, entities and topics are shared between places; when the
last place goes, they go. Ids are content hashes (graph/shared/ids.py).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from graph.extract.entities import entity_key
from graph.extract.extraction import Failure, Occurrence, Reading
from graph.shared.ids import content_id
from graph.types import Document, Passage

AMONG = "IN (SELECT value FROM json_each(?))"
"""In a query: is one of a list, which is given as JSON."""
_SHARED = (
    ("propositions", "SELECT proposition FROM held", "occurrences", "proposition"),
    ("entities", "SELECT entity FROM mentions JOIN held USING (occurrence)", "mentions", "entity"),
    ("topics", "SELECT topic FROM occurrence_topics JOIN held USING (occurrence)", "occurrence_topics", "topic"),
)
"""Tables of what places share, which of it the occurrences `held` have, and the table and column that tell whether another place does."""


def document_hash(document: Document, read_from: str) -> str:
    """What tells a changed document: all that it says and is said to be, and what else its occurrences depend on."""
    parts = (document.source, document.title, document.text, metadata_text(document), read_from)
    return content_id("document", *parts)


def metadata_text(document: Document) -> str:
    """A document's metadata as one line of JSON, the same whatever the order of its keys."""
    return json.dumps(dict(document.metadata), sort_keys=True, ensure_ascii=False)


class Cursor(Protocol):
    """What a statement gave: rows, one after another, or how many it changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection of SQLite, or one that takes its statements: `?` stands for a parameter."""

    def execute(self, statement: str, parameters: Sequence[Any] = ...) -> Cursor: ...
    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> object: ...
    def close(self) -> None: ...


class Store(ABC):
    """A connection to the rows of one index: the writer's, or one that only reads.

    Statements are in what SQL SQLite and PostgreSQL have in common, so both kinds of store do the same.
    """

    _connection: Connection

    def __init__(self) -> None:
        self._loose: dict[str, set[int]] = {table: set() for table, *_ in _SHARED}

    @abstractmethod
    def close(self) -> None:
        """Let the rows go."""

    @abstractmethod
    def vacuum(self) -> None:
        """Give the space of deleted rows back."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction that writes."""

    def _undo(self) -> None:
        self._connection.execute("ROLLBACK")

    @abstractmethod
    def _finish(self) -> None:
        """Do what is left before a transaction is committed."""

    @abstractmethod
    def _committed(self) -> None:
        """Do what is to be done once a transaction is there to stay."""

    def count(self, table: str) -> int:
        """Rows of a table."""
        return int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: what is written inside is there after it, or none of it is."""
        self._begin()
        try:
            yield
            self._finish()
        except BaseException:
            self._undo()
            raise
        self._connection.execute("COMMIT")
        self._committed()

    def rows(self, query: str, parameters: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        """The rows of a SELECT, streamed."""
        yield from self._connection.execute(query, parameters)

    def get_meta(self, key: str) -> str | None:
        """A value of the index itself ("settings", "encoder", "prompts", "generation"), or None."""
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: Mapping[str, object] | str) -> None:
        """Keep a value of the index itself; mappings as JSON."""
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        self._connection.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, text)
        )

    def next_generation(self) -> int:
        """The number of the generation that is about to be written: one more than at the last call, from 1."""
        number = 1 + int(self.get_meta("generation") or 0)
        self.set_meta("generation", str(number))
        return number

    def changed_since(self, generation: int) -> list[str] | None:
        """The sources of all documents put, read or deleted since that generation was derived, in order; None if that is not known."""
        if self.get_meta("derived") != str(generation):
            return None
        return [str(source) for (source,) in self._connection.execute("SELECT source FROM changed ORDER BY source")]

    def note_derived(self, generation: int) -> None:
        """All that was changed is in the arrays of this generation."""
        self._connection.execute("DELETE FROM changed")
        self.set_meta("derived", str(generation))

    def _note_change(self, source: str) -> None:
        self._connection.execute("INSERT INTO changed VALUES (?) ON CONFLICT DO NOTHING", (source,))

    def put_document(self, document: Document, read_from: str = "") -> bool:
        """Add or replace a document, to be extracted; False when the very same one is there already.

        `read_from` identifies what else its occurrences depend on (graph/build/read_passages.py).
        """
        content = document_hash(document, read_from)
        known = self._connection.execute("SELECT hash FROM documents WHERE source = ?", (document.source,)).fetchone()
        if known is not None and known[0] == content:
            return False
        if known is not None:
            self.delete_document(document.source)
        self._note_change(document.source)
        self._connection.execute(
            "INSERT INTO documents (source, title, text, metadata, hash) VALUES (?, ?, ?, ?, ?)",
            (document.source, document.title, document.text, metadata_text(document), content),
        )
        return True

    def delete_document(self, source: str) -> bool:
        """Remove a document and everything that was read from it alone; False when there is none."""
        self._note_change(source)
        for table, query, _, _ in _SHARED:
            held = """WITH held AS (SELECT o.row AS occurrence, o.proposition FROM occurrences o JOIN passages p ON p.row = o.passage
                WHERE p.source = ?)"""
            self._loose[table].update(int(row) for (row,) in self._connection.execute(f"{held} {query}", (source,)))
        return self._connection.execute("DELETE FROM documents WHERE source = ?", (source,)).rowcount > 0

    def document_hashes(self) -> dict[str, str]:
        """The `document_hash` of every document, by source."""
        return dict(self._connection.execute("SELECT source, hash FROM documents"))

    def sources_to_extract(self) -> list[str]:
        """Documents that have been put but whose occurrences are not there yet, in order."""
        rows = self._connection.execute("SELECT source FROM documents WHERE extracted = 0 ORDER BY source")
        return [str(source) for (source,) in rows]

    def document(self, source: str) -> Document:
        """One document, whole."""
        query = "SELECT source, title, text, metadata FROM documents WHERE source = ?"
        source, title, text, metadata = self._connection.execute(query, (source,)).fetchone()
        return Document(source, title, text, json.loads(metadata))

    def passage_ids(self, source: str) -> set[str]:
        """Ids of a document's passages that have been read, or quarantined."""
        rows = self._connection.execute("SELECT id FROM passages WHERE source = ?", (source,))
        return {str(identity) for (identity,) in rows}

    def put_reading(self, reading: Reading) -> None:
        """Keep what came of a passage: its occurrences, or why it is in quarantine. The passage is new or quarantined."""
        passage = reading.passage
        self._note_change(passage.source)
        row = self._connection.execute(
            """INSERT INTO passages (id, source, "order", "start", "end", reader, dropped) VALUES (?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (id) DO UPDATE SET reader = excluded.reader, dropped = excluded.dropped RETURNING row""",
            (passage.id, passage.source, passage.order, passage.start, passage.end, reading.reader, reading.dropped),
        ).fetchone()[0]
        self._connection.execute("DELETE FROM quarantine WHERE passage = ?", (row,))
        if reading.failure is not None:
            self._put_failure(row, reading.failure)
        for occurrence in reading.occurrences:
            self._put_occurrence(row, occurrence)

    def finish_document(self, source: str) -> None:
        """All passages of a document have been put."""
        self._connection.execute("UPDATE documents SET extracted = 1 WHERE source = ?", (source,))

    def quarantined(self) -> list[tuple[Passage, int]]:
        """Passages that could not be read, in order, and how many times each was tried."""
        rows = self._connection.execute(
            """SELECT p.id, p.source, d.title, p."order", p."start", p."end",
            substr(d.text, CAST(p."start" + 1 AS INTEGER), CAST(p."end" - p."start" AS INTEGER)), q.attempts
            FROM quarantine q JOIN passages p ON p.row = q.passage JOIN documents d USING (source)
            ORDER BY p.source, p."order" """
        )
        return [(Passage(*row[:7]), int(row[7])) for row in rows]

    def _put_failure(self, passage_row: int, failure: Failure) -> None:
        values = (passage_row, failure.problem, failure.reply, failure.attempts)
        self._connection.execute("INSERT INTO quarantine VALUES (?, ?, ?, ?)", values)

    def _put_occurrence(self, passage_row: int, occurrence: Occurrence) -> None:
        proposition = self._row_of("propositions", "text", content_id("proposition", occurrence.text), occurrence.text)
        row = self._connection.execute(
            'INSERT INTO occurrences (proposition, passage, "start", "end") VALUES (?, ?, ?, ?) RETURNING row',
            (proposition, passage_row, occurrence.start, occurrence.end),
        ).fetchone()[0]
        entities: dict[str, int] = {}
        for spelling in occurrence.entities:
            key = entity_key(spelling)
            entities[key] = self._row_of("entities", "key", content_id("entity", key), key)
            self._connection.execute(
                "INSERT INTO mentions VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (row, entities[key], spelling)
            )
        for topic in occurrence.topics:
            topic_row = self._row_of("topics", "text", content_id("topic", topic), topic)
            self._connection.execute(
                "INSERT INTO occurrence_topics VALUES (?, ?) ON CONFLICT DO NOTHING", (row, topic_row)
            )
        for fact in occurrence.facts:
            ends = entities[entity_key(fact.subject)], entities[entity_key(fact.object)]
            values = (row, ends[0], fact.relation, ends[1])
            self._connection.execute("INSERT INTO facts VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", values)

    def _row_of(self, table: str, column: str, identity: str, value: str) -> int:
        found = self._connection.execute(f"SELECT row FROM {table} WHERE id = ?", (identity,)).fetchone()
        if found is None:
            insert = f"INSERT INTO {table} (id, {column}) VALUES (?, ?) RETURNING row"
            found = self._connection.execute(insert, (identity, value)).fetchone()
        return int(found[0])

    def drop_orphans(self) -> None:
        """Remove what documents that this connection deleted had alone: propositions, entities and topics that no place holds any more."""
        for table, _, links, column in _SHARED:
            self._connection.executemany(
                f"DELETE FROM {table} WHERE row = ? AND NOT EXISTS (SELECT 1 FROM {links} WHERE {column} = {table}.row)",
                [(row,) for row in self._loose[table]],
            )
            self._loose[table].clear()

    def put_summaries(self, summaries: Iterable[tuple[str, int, str]]) -> None:
        """Replace all (id, layer, text) of summaries: an id tells its layer and its text, so those that are there already stay."""
        now = {each[0]: each for each in summaries}
        there = {str(identity) for (identity,) in self._connection.execute("SELECT id FROM summaries")}
        gone, new = ([(each,) for each in there - now.keys()], [now[each] for each in now.keys() - there])
        self._connection.executemany("DELETE FROM summaries WHERE id = ?", gone)
        self._connection.executemany("INSERT INTO summaries VALUES (?, ?, ?)", new)
