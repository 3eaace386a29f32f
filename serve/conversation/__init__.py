"""Conversations: the intent of the last turn, its search query, and the earlier turns in the prompt."""
