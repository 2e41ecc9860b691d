"""Faults of nodes and of the network between them and their viewers, and what became of each."""
