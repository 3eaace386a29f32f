-- What spares reading all rows (graph/store/sqlite.py has the same): documents that wait to be read, and passages by what read them.
-- A key of SQLite is in each of its indexes; here it is named, so that counts by reader without those in quarantine read no table.
CREATE INDEX documents_to_extract ON documents (source) WHERE extracted = 0;
CREATE INDEX passages_by_reader ON passages (reader, dropped) INCLUDE (row);
