"""Text processing: scripts and words, BM25 terms, prompts and structured replies, special tokens."""
