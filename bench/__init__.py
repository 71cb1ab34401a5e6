"""The benchmarks that `make bench` runs: judges that know the truth, and the tuners that they judge."""
