"""The daemon in the lab: the demo, and the seams through which probes and experiments reach simulated services."""
