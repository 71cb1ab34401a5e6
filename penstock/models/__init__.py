"""Computes: what is known about each operation. No clock, no I/O, no random numbers beyond a seed."""
