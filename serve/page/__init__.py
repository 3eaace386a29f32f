"""The page at /: HTML, a style sheet and small modules, served by middleware.py; it calls only this server's routes."""
