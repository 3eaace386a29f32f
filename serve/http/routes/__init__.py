"""The routes, with their requests and responses."""
