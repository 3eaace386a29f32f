"""Chosen and rejected reasonings: written, checked for support, contrasted with hard negatives."""
