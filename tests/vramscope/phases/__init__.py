"""Memory by phase and by length."""
