"""From files and tables to documents, and from documents to passages; question files."""
