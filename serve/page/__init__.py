"""The pages at / and /docs: HTML, style sheets and small modules, served by middleware.py; they call only this server's routes."""
