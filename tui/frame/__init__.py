"""What every screen shares: the application's base, keys, help, prompts, lists and notes."""
