"""Mode `plan`: sub-questions in a graph, answered level by level (PankRAG)."""
