"""Estimates written: text, JSON, figures."""
