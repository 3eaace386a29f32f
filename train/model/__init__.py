"""Models and their forward pass: loading, attention masks, rotations, packing, log-probabilities, and a trial before training."""
