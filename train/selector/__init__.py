"""`modegraph train selector`: trains a light selector of propositions on relevance data, or the second hop of `hops` on indexes and their questions."""
