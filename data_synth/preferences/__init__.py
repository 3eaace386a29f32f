"""Preference rows: chosen reasoning, checked for support, against hard negatives or bare answers."""
