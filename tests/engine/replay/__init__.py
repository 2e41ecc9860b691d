"""Tests of playing recordings to any moment."""
