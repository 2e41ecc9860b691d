"""Families that are scored; no threshold is chosen on any of them."""
