"""Acts on the disk: what was measured, advised and spent is kept, and read back whatever befell it."""
