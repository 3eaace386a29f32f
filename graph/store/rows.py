"""The rows of an index, its single source of truth. Arrays, graph blocks and vectors are derived from them (graph/build/derive.py).

The rows are in index.sqlite (graph/store/sqlite.py) or in PostgreSQL (graph/postgres/store.py).

Tables: documents → passages → occurrences (one proposition at one position of a text) → mentions (an entity in an occurrence), topics and
facts. A passage in `quarantine` could not be read. Propositions, entities and topics are shared by occurrences, and deleted with
their last occurrence. Ids are content hashes (graph/shared/ids.py).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from graph.extract.entities import entity_key
from graph.extract.extraction import Occurrence, Reading
from graph.shared.ids import content_id
from graph.types import Document, Passage

TABLES = (
    *("meta", "documents", "passages", "propositions", "entities", "occurrences", "mentions", "topics"),
    *("occurrence_topics", "facts", "quarantine", "summaries", "changed"),
)
"""The tables that a store reads and writes, each after the tables that it references."""
AMONG = "IN (SELECT value FROM json_each(?))"
"""SQL condition: the value is in a list that is passed as JSON."""
_SHARED = (
    ("propositions", "SELECT proposition FROM doc_occurrences", "occurrences", "proposition"),
    ("entities", "SELECT entity FROM mentions JOIN doc_occurrences USING (occurrence)", "mentions", "entity"),
    (
        "topics",
        "SELECT topic FROM occurrence_topics JOIN doc_occurrences USING (occurrence)",
        "occurrence_topics",
        "topic",
    ),
)
"""Shared tables: a query for the rows that the occurrences of a document refer to, and the table and column that refer to the shared table."""


def document_hash(document: Document, input_hash: str) -> str:
    """The hash by which a changed document is detected. `input_hash` identifies the other inputs of its extraction (graph/build/read_passages.py)."""
    parts = (document.source, document.title, document.text, metadata_text(document), input_hash)
    return content_id("document", *parts)


def metadata_text(document: Document) -> str:
    """A document's metadata as one line of JSON, independent of the order of its keys."""
    return json.dumps(dict(document.metadata), sort_keys=True, ensure_ascii=False)


class Cursor(Protocol):
    """The result of a statement: an iterator over the rows of a query, and the number of rows that a write changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """An SQLite connection, or one that accepts the same statements: `?` marks a parameter."""

    def execute(self, statement: str, parameters: Sequence[Any] = ...) -> Cursor: ...
    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> object: ...
    def close(self) -> None: ...


class Store(ABC):
    """A connection to the rows of one index, opened for writing or read-only. Statements use the SQL that SQLite and PostgreSQL have in common."""

    _connection: Connection

    def __init__(self) -> None:
        self._maybe_orphaned: dict[str, set[int]] = {table: set() for table, *_ in _SHARED}

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def vacuum(self) -> None:
        """Free the space of deleted rows."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a write transaction."""

    def _undo(self) -> None:
        self._connection.execute("ROLLBACK")

    def count(self, table: str) -> int:
        """The number of rows of a table."""
        return int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes in the block are committed, or none if it raises."""
        self._begin()
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self._undo()
            raise

    def rows(self, query: str, parameters: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        """The rows of a SELECT, streamed."""
        yield from self._connection.execute(query, parameters)

    def get_meta(self, key: str) -> str | None:
        """A property of the index ("settings", "encoder", "generation", …), or None."""
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: Mapping[str, object] | str) -> None:
        """Store a property of the index; mappings as JSON."""
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        statement = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        self._connection.execute(statement, (key, text))

    def next_generation(self) -> int:
        """The number of the next generation: one more than at the last call, starting at 1."""
        number = 1 + int(self.get_meta("generation") or 0)
        self.set_meta("generation", str(number))
        return number

    def changed_since(self, generation: int) -> list[str] | None:
        """The sources of all documents added, replaced, extracted from or deleted since the arrays of that generation were derived, sorted; None if unknown."""
        if self.get_meta("derived") != str(generation):
            return None
        return [str(source) for (source,) in self._connection.execute("SELECT source FROM changed ORDER BY source")]

    def note_derived(self, generation: int) -> None:
        """Record that the arrays of this generation contain all changes."""
        self._connection.execute("DELETE FROM changed")
        self.set_meta("derived", str(generation))

    def _insert(self, table: str, *values: object) -> None:
        """Insert a row into a table, unless the table already contains it."""
        marks = ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT DO NOTHING", values)

    def put_document(self, document: Document, input_hash: str) -> bool:
        """Add or replace a document and mark it for extraction; False, without a change, if one with the same `document_hash` is stored."""
        content = document_hash(document, input_hash)
        known = self._connection.execute("SELECT hash FROM documents WHERE source = ?", (document.source,)).fetchone()
        if known is not None and known[0] == content:
            return False
        if known is not None:
            self.delete_document(document.source)
        self._insert("changed", document.source)
        values = (document.source, document.title, document.text, metadata_text(document), content)
        insert = "INSERT INTO documents (source, title, text, metadata, hash) VALUES (?, ?, ?, ?, ?)"
        self._connection.execute(insert, values)
        return True

    def delete_document(self, source: str) -> bool:
        """Delete a document with its passages and occurrences; False if there is none. `drop_orphans` then deletes the rows without occurrences."""
        if self._connection.execute("SELECT 1 FROM documents WHERE source = ?", (source,)).fetchone() is None:
            return False
        self._insert("changed", source)
        for table, query, _, _ in _SHARED:
            occurrences = """WITH doc_occurrences AS (SELECT o.row AS occurrence, o.proposition FROM occurrences o
                JOIN passages p ON p.row = o.passage WHERE p.source = ?)"""
            rows = self._connection.execute(f"{occurrences} {query}", (source,))
            self._maybe_orphaned[table].update(int(row) for (row,) in rows)
        self._connection.execute("DELETE FROM documents WHERE source = ?", (source,))
        return True

    def document_hashes(self) -> dict[str, str]:
        """The `document_hash` of every document, by source."""
        return dict(self._connection.execute("SELECT source, hash FROM documents"))

    def sources(self) -> list[str]:
        """The sources of all documents."""
        return [str(source) for (source,) in self._connection.execute("SELECT source FROM documents")]

    def sources_to_extract(self) -> list[str]:
        """The sources of documents whose extraction is not finished, sorted."""
        rows = self._connection.execute("SELECT source FROM documents WHERE extracted = 0 ORDER BY source")
        return [str(source) for (source,) in rows]

    def document(self, source: str) -> Document:
        """The stored document of a source."""
        query = "SELECT source, title, text, metadata FROM documents WHERE source = ?"
        source, title, text, metadata = self._connection.execute(query, (source,)).fetchone()
        return Document(source, title, text, json.loads(metadata))

    def passage_ids(self, source: str) -> set[str]:
        """The ids of a document's passages that have been read or quarantined."""
        rows = self._connection.execute("SELECT id FROM passages WHERE source = ?", (source,))
        return {str(identity) for (identity,) in rows}

    def put_reading(self, reading: Reading) -> None:
        """Store the result of reading a passage, new or quarantined: its occurrences, or its failure."""
        passage, failure = reading.passage, reading.failure
        self._insert("changed", passage.source)
        row = self._connection.execute(
            """INSERT INTO passages (id, source, "order", "start", "end", reader, dropped) VALUES (?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (id) DO UPDATE SET reader = excluded.reader, dropped = excluded.dropped RETURNING row""",
            (passage.id, passage.source, passage.order, passage.start, passage.end, reading.reader, reading.dropped),
        ).fetchone()[0]
        self._connection.execute("DELETE FROM quarantine WHERE passage = ?", (row,))
        if failure is not None:
            self._insert("quarantine", row, failure.problem, failure.reply, failure.attempts)
        for occurrence in reading.occurrences:
            self._put_occurrence(row, occurrence)

    def finish_document(self, source: str) -> None:
        """Record that the readings of all passages of a document are stored."""
        self._connection.execute("UPDATE documents SET extracted = 1 WHERE source = ?", (source,))

    def quarantined(self) -> list[tuple[Passage, int]]:
        """Passages that could not be read, in order, each with the number of attempts; their `title`, `text` and `header` are left empty."""
        rows = self._connection.execute(
            """SELECT p.id, p.source, p."order", p."start", p."end", q.attempts
            FROM quarantine q JOIN passages p ON p.row = q.passage ORDER BY p.source, p."order" """
        )
        return [
            (Passage(identity, source, "", order, start, end, ""), attempts)
            for identity, source, order, start, end, attempts in rows
        ]

    def _put_occurrence(self, passage_row: int, occurrence: Occurrence) -> None:
        proposition = self._row_of("propositions", "text", content_id("proposition", occurrence.text), occurrence.text)
        insert = 'INSERT INTO occurrences (proposition, passage, "start", "end") VALUES (?, ?, ?, ?) RETURNING row'
        values = (proposition, passage_row, occurrence.start, occurrence.end)
        row = self._connection.execute(insert, values).fetchone()[0]
        entities: dict[str, int] = {}
        for spelling in occurrence.entities:
            key = entity_key(spelling)
            entities[key] = self._row_of("entities", "key", content_id("entity", key), key)
            self._insert("mentions", row, entities[key], spelling)
        for topic in occurrence.topics:
            self._insert("occurrence_topics", row, self._row_of("topics", "text", content_id("topic", topic), topic))
        for fact in occurrence.facts:
            subject, related = entities[entity_key(fact.subject)], entities[entity_key(fact.object)]
            self._insert("facts", row, subject, fact.relation, related)

    def _row_of(self, table: str, column: str, identity: str, value: str) -> int:
        found = self._connection.execute(f"SELECT row FROM {table} WHERE id = ?", (identity,)).fetchone()
        if found is None:
            insert = f"INSERT INTO {table} (id, {column}) VALUES (?, ?) RETURNING row"
            found = self._connection.execute(insert, (identity, value)).fetchone()
        return int(found[0])

    def drop_orphans(self) -> None:
        """After deletions by this connection, delete the propositions, entities and topics that no occurrence refers to any more."""
        for table, _, links, column in _SHARED:
            self._connection.executemany(
                f"DELETE FROM {table} WHERE row = ? AND NOT EXISTS (SELECT 1 FROM {links} WHERE {column} = {table}.row)",
                [(row,) for row in self._maybe_orphaned[table]],
            )
            self._maybe_orphaned[table].clear()

    def put_summaries(self, summaries: Iterable[tuple[str, int, str]]) -> None:
        """Replace all summaries (id, layer, text): an id identifies layer and text, so rows with the same id are not written again."""
        new_by_id = {summary[0]: summary for summary in summaries}
        stored = {str(identity) for (identity,) in self._connection.execute("SELECT id FROM summaries")}
        deleted = [(identity,) for identity in stored - new_by_id.keys()]
        added = [new_by_id[identity] for identity in new_by_id.keys() - stored]
        self._connection.executemany("DELETE FROM summaries WHERE id = ?", deleted)
        self._connection.executemany("INSERT INTO summaries VALUES (?, ?, ?)", added)
