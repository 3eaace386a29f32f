"""Multi-hop questions over an index (HLG §5): from templates over paths of propositions, or by a model."""
