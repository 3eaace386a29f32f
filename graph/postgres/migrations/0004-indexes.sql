-- Indexes that avoid full table scans, as in graph/store/sqlite.py: of documents to extract, and of passages by reader.
-- In SQLite, every index contains the row key; here it is included, so that counting passages by reader, except those in quarantine, needs only indexes.
CREATE INDEX documents_to_extract ON documents (source) WHERE extracted = 0;
CREATE INDEX passages_by_reader ON passages (reader, dropped) INCLUDE (row);
