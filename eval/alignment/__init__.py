"""What preference training did to a policy, measured on held-out prompts: expected reward against KL to the reference."""
