"""Verifiers on sentences that people judged: does what marks unsupported sentences tell them from supported ones?"""
