"""The building blocks of modes: queries, settings, mentions, scores, ranks, suggestions."""
