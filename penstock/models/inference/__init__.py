"""Knows how to learn from few noisy measurements, whatever the operation."""
