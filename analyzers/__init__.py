"""What thinks: pure streaming analyzers that turn samples into findings."""
