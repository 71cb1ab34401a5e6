"""Acts on the host: decides when to probe, remembers, and answers applications. Its rooms are layers, too."""
