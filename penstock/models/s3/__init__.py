"""Knows S3: the law of a transfer, what is evidence for it, how it is learned, what is advised."""
