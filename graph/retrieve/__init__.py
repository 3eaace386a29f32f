"""Retrieval: from a question and an index to evidence, by one of many modes."""
