"""Measures as pure functions, one kind per file; comparisons print their means over questions."""
