"""The pages of docs/ that are made from the code; `make reference` writes them, and a test compares them with it."""
