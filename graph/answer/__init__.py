"""Prompts and answers: the chat, the excerpts, the form, citations, and whether the passages support an answer."""
