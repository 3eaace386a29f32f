"""An index for reading: columns, vectors and blocks in memory, and restrictions of it. Imports no SQLite, extractor or prompt."""
