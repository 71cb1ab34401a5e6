"""Acts on AWS: exercises an operation on the real service and measures it."""
