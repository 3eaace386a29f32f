"""Tools for maintaining the repository; nothing here is installed."""
