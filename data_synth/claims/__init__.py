"""Restated sentences that a passage supports, and the same sentences falsified: training data for a verifier."""
