"""Exports an index for other tools: a graph file, tables (Parquet or PostgreSQL), or an HTML page to explore. Reads the index and never writes to it."""
