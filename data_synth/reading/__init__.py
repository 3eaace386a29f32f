"""Rows that teach reading: questions over passages, with the gold passages mixed with others or left out, and short cited answers."""
