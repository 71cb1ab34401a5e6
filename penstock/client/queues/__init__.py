"""Drives a queue as advised: sends messages, and works them off."""
