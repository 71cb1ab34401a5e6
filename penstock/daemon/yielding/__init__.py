"""Acts on a probe that is in the way: it waits, or ends, for the host's own work."""
