"""Files and tables to documents, documents to passages, and question files."""
