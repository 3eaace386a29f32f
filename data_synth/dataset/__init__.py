"""Datasets on disk: writing, the dataset card, previews, validation, splitting and joining, and import of public sets."""
