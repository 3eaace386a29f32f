"""Exports an index for other tools: a graph file, tables, or a page to explore. Reads the index, never writes to it."""
