"""An index for other tools: one graph file, tables, or a page to look around in. Reads the index; never writes to it."""
