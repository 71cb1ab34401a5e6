"""The daemon in the lab: the demo, and the interfaces through which probes and experiments reach the lab's services."""
