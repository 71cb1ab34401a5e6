"""Knows what hosts of a fleet tell each other through one bucket. It computes; `daemon/fleet` reads and writes."""
