"""What a training run will take, before it is begun: steps, tokens, FLOPs, memory and hours."""
