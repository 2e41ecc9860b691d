"""Memory of several nodes, collected at one of them."""
