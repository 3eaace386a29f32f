"""Turns files and tables into documents and documents into passages; reads question files."""
