"""Columns of an index: texts, blocks of entries, and maps from the rows of one generation to those of the next."""
