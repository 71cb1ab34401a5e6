"""Acts on AWS: exercises an operation for real and measures it."""
