"""Rankings that were trained: features, selectors and rerankers, the router between the modes."""
