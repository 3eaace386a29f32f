"""From documents to an index: building, editing, resuming, repairing, verifying, and an estimate beforehand."""
