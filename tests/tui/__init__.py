"""Tests of the terminal user interface."""
