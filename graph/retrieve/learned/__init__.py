"""Trained rankings: features, selectors and rerankers."""
