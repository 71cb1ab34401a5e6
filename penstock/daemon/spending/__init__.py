"""Acts on money: what probes may cost, what they did cost, and what a day of probing will cost."""
