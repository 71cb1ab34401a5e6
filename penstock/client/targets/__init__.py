"""What clients are told: one piece of advice in the vocabulary of each; pure, and standard library only."""
