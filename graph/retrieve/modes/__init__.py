"""The retrieval modes except `hops` and `auto`: one per file, the baselines together."""
