"""What is shown of evidence and of an answer: the JSON that HTTP and MCP share."""
