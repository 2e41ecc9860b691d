"""What a server of models needs, and what its start-up log says, as text and JSON."""
