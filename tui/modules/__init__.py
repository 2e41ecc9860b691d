"""Memory by module."""
