"""Training of a verifier: trees that tell sentences that passages support from broken ones."""
