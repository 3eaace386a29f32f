"""Rows that teach reading: questions with passages, the gold ones mixed with others or left out, and short cited answers."""
