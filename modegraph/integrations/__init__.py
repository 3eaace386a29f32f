"""Retrievers that search a modegraph index from other frameworks. Each requires only the package named in the first line of its file."""
