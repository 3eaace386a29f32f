"""The top of the house: the command line (modegraph/cli.py) and what is public for Python."""
