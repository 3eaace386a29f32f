"""An index opened for reading: columns, vectors and blocks in memory, also restricted to some documents. Imports no SQLite, extractor or prompt."""
