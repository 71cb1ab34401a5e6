"""Knows how processes live and end together: with their parent, as a group, and in spite of signals."""
