"""Sweeps of configurations."""
