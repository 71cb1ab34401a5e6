"""What applications import: the standard library only, and never an exception because of penstock.

``penstock.client.advice`` asks; ``penstock.client.boto3`` turns the answer into what boto3 understands.
"""
