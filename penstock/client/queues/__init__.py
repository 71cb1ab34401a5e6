"""Drives a queue as advised: messages that are sent and messages that are worked off."""
