"""Retrievers for other frameworks over a modegraph index. Each requires only the package named in the first line of its file."""
