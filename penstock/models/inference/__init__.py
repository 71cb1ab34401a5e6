"""Knows how anything is learned from few noisy measurements: the knowledge of no operation."""
