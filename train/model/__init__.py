"""Models and their forward pass: loading, attention masks, rotary position embeddings, packing, log-probabilities, and a trial run before training."""
