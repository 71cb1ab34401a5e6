"""Measures how this host should talk to S3 and SQS, and tells the applications on it."""
