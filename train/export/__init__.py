"""Exports of trained models and adapters, with their divergence from the original."""
