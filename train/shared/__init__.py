"""Shared parts of the stages: labelled data folders, calibration, boosted trees."""
