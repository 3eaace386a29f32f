"""Passages to propositions, entities and topics: by rules, by a model, or imported; entities that are the same."""
