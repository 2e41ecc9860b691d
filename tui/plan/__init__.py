"""Plans of a model over devices."""
