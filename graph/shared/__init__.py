"""Shared by all packages: commands and their options, console output, ids, JSON lines, progress, paths. Imports only graph/errors.py and graph/config.py."""
