"""Profiles of computation and hardware as Galvatron writes them."""
