"""Model graphs and partitions for programs."""
