"""Models on disk: the catalogue, fetching and converting, checkpoints and adapters, sentence encoders."""
