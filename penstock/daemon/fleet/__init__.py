"""Acts on the fleet's bucket: shares measurements, decides which hosts probe, and divides shared limits."""
