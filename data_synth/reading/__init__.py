"""Rows that teach reading: questions over passages, the gold ones among others or missing, with short cited answers."""
