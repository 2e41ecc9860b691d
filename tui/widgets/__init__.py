"""Widgets: what the screens are made of."""
