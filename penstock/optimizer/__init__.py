"""Computes: what to try next and what to advise. No clock, no I/O, no random numbers beyond a seed."""
