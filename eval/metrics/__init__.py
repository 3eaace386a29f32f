"""Measures as pure functions, one kind per file; comparisons print means of these over questions."""
