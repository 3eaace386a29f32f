"""Benchmarks, one file each: how their rows become questions and documents, what they are scored by, where they come from."""
