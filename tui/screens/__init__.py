"""Screens: what fills the terminal."""
