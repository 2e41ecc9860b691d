"""What every screen stands in: the application's base, keys, help, prompts, lists and notes."""
