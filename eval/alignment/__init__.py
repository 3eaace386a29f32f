"""The effect of preference training on a policy, measured on held-out prompts: expected reward against KL to the reference."""
