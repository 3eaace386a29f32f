"""The mode `hops`, and the trained hop that reranks its results."""
