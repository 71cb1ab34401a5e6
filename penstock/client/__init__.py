"""What applications import: the standard library only, and never an exception because of penstock.

``penstock.client.advice`` asks; ``penstock.client.boto3``, ``aiobotocore``, ``awscrt`` and ``s3fs`` turn the answer
into what each library understands, and ``penstock.client.targets`` does so for every client, as data.
"""
