"""A filled matrix as a report, and two of them compared."""
