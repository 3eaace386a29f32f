"""The index on disk: the SQLite store, the arrays derived from it, their checksums, its lock and settings."""
