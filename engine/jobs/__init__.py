"""Bringing the probe into a Python process that already runs, or saying why that cannot or must not be."""
