"""Tests of what is printed and written."""
