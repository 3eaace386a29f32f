"""Vectors: computed on as one matrix, kept in immutable segments with ANN indexes, encoded once for each text."""
