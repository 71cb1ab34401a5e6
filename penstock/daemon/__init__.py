"""Acts on the host: decides when, remembers, and speaks to the world. Its rooms are layers as well."""
