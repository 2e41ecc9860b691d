"""Memory by phase written: text and JSON."""
