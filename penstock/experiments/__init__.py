"""Published studies as tables of plans for the probes, in calibrated worlds of the lab or on real services."""
