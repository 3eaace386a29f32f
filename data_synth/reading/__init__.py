"""Rows that teach reading: questions over passages, with the gold passages among others or missing, and short cited answers."""
