"""Conversations: what the last turn asks for, the query to search for it, and the turns that the model is shown."""
