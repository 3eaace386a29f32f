"""Preference optimisation over K responses: groups, objectives (MS, DPO), references, trainers."""
