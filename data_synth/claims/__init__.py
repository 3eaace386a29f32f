"""Sentences that a passage supports, said otherwise, and the same sentences broken on purpose: what a verifier learns from."""
