"""What all parts of the probe share; it does not import any of them."""
