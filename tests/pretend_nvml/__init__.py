"""A pretend libnvidia-ml.so.1 that tests, benchmarks and the demo script live."""
