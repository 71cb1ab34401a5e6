"""Acts on probes that would disturb the host's own work: delays them, or stops them."""
