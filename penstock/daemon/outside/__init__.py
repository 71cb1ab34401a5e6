"""Acts on AWS for the daemon: sends requests from a separate process, and removes everything that probes created."""
