"""Sequence length limits written: text, CSV, JSON, figures."""
