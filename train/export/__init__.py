"""A trained adapter merged and written for others, with its divergence from the original."""
