"""What the lab shows of itself to each operation: how the demo proves its advice, and what is the best there."""
