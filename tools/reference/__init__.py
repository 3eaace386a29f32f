"""The pages of docs/ that are generated from the code and the notebooks; `make reference` writes them, and a test compares them with the code."""
