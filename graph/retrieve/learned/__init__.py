"""Rankings that were trained: features, selectors and rerankers."""
