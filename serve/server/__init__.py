"""Shared by HTTP routes and MCP tools: the collections, retrieval on them, and chat requests from the last turn to the model's text."""
