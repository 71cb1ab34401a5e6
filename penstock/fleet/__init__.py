"""Knows what hosts of a fleet tell each other through one bucket. It computes; `daemon/fleet.py` reads and writes."""
