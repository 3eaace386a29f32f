-- Indexes that avoid full table scans, as in graph/store/sqlite.py: on the documents to extract, and on the passages by reader.
-- In SQLite, every index contains the row key; here, INCLUDE adds it, so that counting passages by reader, except those in quarantine, needs only indexes.
CREATE INDEX documents_to_extract ON documents (source) WHERE extracted = 0;
CREATE INDEX passages_by_reader ON passages (reader, dropped) INCLUDE (row);
