-- Renames the column for the content of feedback to the name that the API uses.
ALTER TABLE feedback RENAME COLUMN said TO content;
