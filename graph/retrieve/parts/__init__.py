"""What modes are made of: queries, settings, ranks, links, suggestions."""
