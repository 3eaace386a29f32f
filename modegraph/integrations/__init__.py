"""Retrievers for other frameworks over an index of ours. Each file needs the package that it is named after, and nothing else here does."""
