"""Does a server give what training saw: its prompts, log-probabilities and greedy tokens, with the adapter and without."""
