"""Knows aiobotocore: the one room that speaks to S3 and SQS, or to compatible services."""
