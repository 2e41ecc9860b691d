"""What all parts of the probe share and that imports none of them."""
