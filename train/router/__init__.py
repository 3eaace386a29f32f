"""A trained router: which retrieval mode a question goes to, learned from route rows, made by `modegraph train router`."""
