"""A conversation: what its last turn asks for, what is searched for it, and which turns the model is shown."""
