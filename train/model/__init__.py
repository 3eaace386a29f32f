"""Models and their forward pass: loading, attention masks, rotations, packing, log-probabilities, a trial beforehand."""
