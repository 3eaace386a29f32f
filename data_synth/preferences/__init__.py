"""Preference rows: chosen reasoning, checked for support, and rejected reasoning or hard negatives."""
