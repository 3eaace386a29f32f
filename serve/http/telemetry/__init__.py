"""Metrics, spans and the access log."""
