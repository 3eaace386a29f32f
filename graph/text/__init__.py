"""Text processing: scripts, sentences and words, BM25 terms, prompts, special tokens, structured replies."""
