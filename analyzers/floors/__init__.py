"""Floors: what stays allocated between training steps, over scales from seconds to days."""
