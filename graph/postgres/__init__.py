"""An index in PostgreSQL: connections, schema, store, writers' turns, call ledger and feedback."""
