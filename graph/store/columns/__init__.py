"""Columns of an index: texts, blocks of entries, and how rows of one generation become those of the next."""
