"""Where the work of a build is done: in this process, or in the workers of a Ray cluster."""
