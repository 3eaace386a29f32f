"""How well a model reads: short answers over passages, by exact match, F1, refusals and citations."""
