"""`modegraph runs`: what was trained and measured below a folder, and what is under way."""
