"""What readers say of answers, kept beside the index they were written from: votes, corrections, the right passage, preferences."""
