"""Memory snapshots and flight records written as text."""
