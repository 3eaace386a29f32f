-- The field of feedback's content has the name that the API uses.
ALTER TABLE feedback RENAME COLUMN said TO content;
