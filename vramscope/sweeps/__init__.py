"""Sweeps over parallel layouts, for programs and for the verbs."""
