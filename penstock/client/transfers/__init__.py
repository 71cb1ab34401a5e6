"""Moves objects of S3 as advised: files, streams that are read and streams that are written."""
