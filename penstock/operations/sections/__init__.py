"""What the operator may say of an operation, and what follows from it."""
