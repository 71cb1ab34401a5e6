"""Worlds of known truth: the physics of links, S3 and SQS, in virtual time and behind real sockets."""
