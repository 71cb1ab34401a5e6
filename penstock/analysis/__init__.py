"""What is read by engines that others wrote, past what one host's database holds: needs `penstock[analysis]`."""
