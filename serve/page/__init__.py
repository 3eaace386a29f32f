"""The page at /: HTML, one style sheet and small modules, served by middleware.py; it talks to the server's own routes and no one else."""
