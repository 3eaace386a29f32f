"""The RAG server: an OpenAI-compatible HTTP interface whose models answer from an index, with citations checked in code."""
