"""One process: its own history."""
