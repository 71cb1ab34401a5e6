"""Translates advice into each client's own options: pure functions, with the standard library alone."""
