"""Acts on what applications are heard to do: who they are, what they would gain, and who was refused."""
