"""The building blocks of modes: queries, settings, ranks, links, suggestions."""
