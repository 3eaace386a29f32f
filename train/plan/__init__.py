"""The cost of a training run, before it starts: steps, tokens, FLOPs, memory and hours."""
