"""One face of the lab for each operation: how the demo proves its advice, and the best that the lab allows."""
