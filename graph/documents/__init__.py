"""Files and tables to documents, documents to passages, and files of questions."""
