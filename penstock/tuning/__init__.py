"""Tunes a client that somebody else wrote: proposes, has it work, learns, and advises."""
