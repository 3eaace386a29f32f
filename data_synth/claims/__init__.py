"""Restated sentences that a passage supports, and the same sentences broken on purpose: training data for a verifier."""
