"""The operations on SQS, a row in a file for each."""
