"""Exercises S3."""
