"""The retrieval modes except `hops` and `auto`: one per file, except that the baselines share one."""
