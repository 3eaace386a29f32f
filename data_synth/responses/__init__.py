"""K responses to each prompt, with rewards by component."""
