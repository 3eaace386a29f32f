"""Whether the passages that a text cites say what it says: a reading of words, by trees trained on sentences broken on purpose."""
