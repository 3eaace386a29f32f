"""`modegraph serve check`: compares a server's prompts, log-probabilities and replies with those of the training run that it serves."""
