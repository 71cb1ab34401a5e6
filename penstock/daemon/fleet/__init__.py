"""Acts on the fleet's bucket: what hosts tell each other, who of them probes, and what of a shared limit is whose."""
