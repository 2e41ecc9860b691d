"""Sweeps written: text, JSON, figures, heat maps, pages."""
