"""Acts on AWS for the daemon: from a process of its own, and until nothing is left there."""
