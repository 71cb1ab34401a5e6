"""Knows SQS: what a queue costs a client, how that is learned, and how its collapse is predicted."""
