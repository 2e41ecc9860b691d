"""Inspection of a memory snapshot, a trace or a flight record."""
