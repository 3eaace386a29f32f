"""A training run: settings, data, the loop, saving, the model card."""
