"""Passages to propositions, entities and topics, by rules, by a model, or imported; and the merging of equal entities."""
