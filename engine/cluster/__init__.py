"""Memory of several nodes brought together at one of them."""
