"""Random walks over sparse blocks, batched."""
