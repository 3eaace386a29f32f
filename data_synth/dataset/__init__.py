"""Datasets on disk: writing, the dataset card, validation, previews, and import of public sets."""
