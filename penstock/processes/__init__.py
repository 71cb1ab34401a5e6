"""Knows how processes live and end together: with a parent, as a group, and whatever a signal interrupts."""
