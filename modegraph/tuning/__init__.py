"""`modegraph tune`: from documents to a tuned model, which is recommended only if it is better on questions that it was not trained on."""
