"""What applications import to ask: standard library only, and nothing of the rest of penstock."""
