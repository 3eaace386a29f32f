"""The pages at / and /docs: HTML, style sheets and small modules, served by middleware.py. The modules call only this server's routes."""
