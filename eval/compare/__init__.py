"""Aligned models side by side: measures with intervals, a report, a page."""
