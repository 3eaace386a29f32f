"""Who and how much is let in: keys, origins, a queue, limits, silent connections."""
