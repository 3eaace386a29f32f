"""The pages of docs/ that are generated from the code; `make reference` writes them, and a test compares them with the code."""
