"""Benchmarks, one file each: how their rows become questions and documents, how they are scored, and where they come from."""
