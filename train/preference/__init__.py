"""Preference optimisation over K responses: groups, objectives (MS, DPO and others), references, trainers."""
