"""Retrievers for other frameworks, which search a modegraph index. Each requires only the package named in the first line of its file."""
