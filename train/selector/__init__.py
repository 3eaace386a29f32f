"""Training of selectors, which predict the propositions that help to answer a question, from relevance data (`modegraph train selector`)."""
