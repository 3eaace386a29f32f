"""`modegraph tune`: from documents to a tuned model, recommended only if it is better on questions that it was not trained on."""
