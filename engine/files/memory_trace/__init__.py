"""Memory traces of one iteration: names, records, runs and levels."""
