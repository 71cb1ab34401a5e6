"""Acts on the host: decides when, remembers, and speaks to the world."""
