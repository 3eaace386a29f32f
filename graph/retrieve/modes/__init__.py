"""One file a retrieval mode."""
