"""Which propositions help to answer which question: rows for training a light selector, made by `modegraph synth relevance`."""
