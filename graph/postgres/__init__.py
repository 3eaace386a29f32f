"""An index and PostgreSQL: its tables with pgvector, for other tools to query; its rows, copied either way."""
