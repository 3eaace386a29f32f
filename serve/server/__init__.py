"""Shared by HTTP routes and MCP tools: the collections, retrieval from them, and all steps of a chat request up to the model's text."""
