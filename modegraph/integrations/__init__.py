"""Retrievers for other frameworks over a modegraph index. Each retriever requires only the package that its file names first."""
