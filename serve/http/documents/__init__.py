"""The documents of a collection: listed, read, and, where it may be written to, added and deleted."""
