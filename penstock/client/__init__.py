"""What applications import: the standard library only, and never an exception because of penstock.

``penstock.client.advice`` asks; ``penstock.client.boto3`` and ``aiobotocore`` have all that is for those SDKs, from a
configuration to transfers and queues; ``awscrt`` and ``s3fs`` turn the answer into what these understand, and
``penstock.client.targets`` does so for every client, as data.
"""
