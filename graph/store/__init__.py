"""The index on disk: its SQLite store, the arrays derived from the store, their checksums, and the lock and settings of the index."""
