"""The pages at / and /docs: HTML, style sheets and small JavaScript modules, served by middleware.py. The scripts call only this server's routes."""
