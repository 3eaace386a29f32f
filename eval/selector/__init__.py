"""Selectors side by side in one mode: quality of what is retrieved and of what is selected, model calls, tokens, seconds."""
