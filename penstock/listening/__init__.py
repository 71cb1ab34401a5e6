"""What applications' own SDKs say of their calls, read and counted."""
