"""A trained selector: which propositions help to answer a question, learned from relevance data, made by `modegraph train selector`."""
