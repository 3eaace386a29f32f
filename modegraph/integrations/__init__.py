"""Retrievers for other frameworks over a modegraph index. Each file requires the package that it is named after, and no other framework."""
