"""Rows on disk: writing, the card, checking, showing, and public sets in our forms."""
