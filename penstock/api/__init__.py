"""Speaks to applications: the socket, what is said on it, leases and the snapshot file."""
