"""From documents to an index: estimating the cost of a build, and building, editing, resuming, verifying and repairing an index."""
