"""The similarity graph over passages and summaries, its communities, and their summaries (GraphMPA §3.1)."""
