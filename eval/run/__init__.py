"""`modegraph eval run`: systems × tasks. Settings → cells (each system's results on each task, one file per cell) → scores → report."""
