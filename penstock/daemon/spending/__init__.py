"""Acts on money: what probes may cost, what they do cost, and what a day of them comes to."""
