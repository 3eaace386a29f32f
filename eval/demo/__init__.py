"""`modegraph demo`: the full pipeline on examples/, through the same commands a user would type, in one process."""
