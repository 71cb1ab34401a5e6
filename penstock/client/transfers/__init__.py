"""Moves objects of S3 as advised: files, and streams to read or to write."""
