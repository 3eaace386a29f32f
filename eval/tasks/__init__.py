"""The benchmarks by name, their commands, and the scores of a file of predictions."""
