"""The routes, what they read and what they answer."""
