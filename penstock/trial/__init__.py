"""The daemon in the lab: the demo in real time, whole weeks in virtual time."""
