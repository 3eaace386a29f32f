"""Models as they lie on disk, opened by training and serving alike: what is missing, damaged or of another model is told by name."""
