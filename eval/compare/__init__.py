"""Fine-tuned models side by side: their answers, log-probabilities and metrics."""
