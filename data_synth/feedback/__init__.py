"""What readers said of answers (graph/feedback), as preference, relevance and route rows."""
