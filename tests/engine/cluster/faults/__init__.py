"""Faults of the network between agents and who follows them."""
