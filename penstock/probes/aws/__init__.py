"""Knows aiobotocore: the one room that speaks to S3 and SQS, or to whatever answers like them."""
