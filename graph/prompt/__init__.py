"""What a model reads and writes: passages in a context, the form of an answer, and the one rule for citations."""
