"""The retrieval modes except `hops`: one per file, the baselines together."""
