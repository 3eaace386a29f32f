"""Access to the collections for clients of the Model Context Protocol, over HTTP (/mcp) and over standard input and output."""
