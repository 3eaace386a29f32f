"""Retrieval measured: recall, cost, latency."""
