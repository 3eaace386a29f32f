"""Retrievers for other frameworks over a modegraph index. Each file needs the package that it is named after; nothing else here does."""
