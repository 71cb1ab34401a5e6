"""Tunes a client that somebody else wrote: proposes settings, runs it, learns, and advises."""
