"""`modegraph train selector`: a light selector of propositions, from relevance data, or the second hop of `hops`, from indexes and their questions."""
