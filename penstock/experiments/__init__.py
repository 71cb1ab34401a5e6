"""Published studies as tables of plans over the probes: in calibrated worlds of the lab, or on real services."""
