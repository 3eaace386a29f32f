"""Columns of an index: texts, sparse matrices, and maps from the rows of one generation to those of the next."""
