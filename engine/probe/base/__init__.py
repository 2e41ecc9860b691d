"""What all parts of the probe share; it imports none of them."""
