"""`modegraph demo`: the whole road on examples/, by the very commands a user would type, in one process."""
