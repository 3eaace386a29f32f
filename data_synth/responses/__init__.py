"""K responses a question, rewarded and judged."""
