"""Small experiments that show what an objective does, exactly and within minutes on a CPU."""
