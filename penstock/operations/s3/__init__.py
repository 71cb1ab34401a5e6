"""The operations on S3, a row in a file for each, and what they share."""
