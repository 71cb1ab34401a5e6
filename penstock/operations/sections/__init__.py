"""What the operator may configure for an operation, and what follows from that."""
