"""What HTTP routes and MCP tools share: the collections, retrieval on them, and a chat request from its turn to the model's text."""
