"""Exercises SQS."""
