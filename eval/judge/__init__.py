"""Pairwise judging by a language model: both orders of every pair of answers, ties, and the judge's own biases reported."""
