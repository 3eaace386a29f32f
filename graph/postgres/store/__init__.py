"""The rows of an index in PostgreSQL: connections, migrations, the store over them, the line of its writers, its kept calls."""
