"""A world of known truth: physics of links, S3 and SQS, in virtual time and behind real sockets."""
