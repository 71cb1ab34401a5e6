"""Acts on the disk: stores what was measured, advised and spent, and reads it back even from a damaged file."""
