"""Rows that teach reading: questions over passages, with the gold ones among others or missing, and short cited answers."""
