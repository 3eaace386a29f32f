"""Exports trained models and adapters, and measures how far the exported files diverge from the originals."""
