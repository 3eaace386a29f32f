"""A reward model, and scores by one."""
