"""`modegraph eval run`: systems × tasks. Settings → cells (what each system did, one file each) → scores → report."""
