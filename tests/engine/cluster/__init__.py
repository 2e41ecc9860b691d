"""Several nodes: who is there, and how even their memory is."""
