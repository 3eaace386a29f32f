"""The cells of a matrix: what each depends on, and filling those that are missing."""
