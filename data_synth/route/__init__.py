"""Which retrieval mode answers which question best for its cost: rows for training a router, made by `modegraph synth route`."""
