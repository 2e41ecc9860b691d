"""What writes: machine-readable and printed forms of what was measured."""
