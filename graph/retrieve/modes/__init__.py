"""The retrieval modes, one per file."""
