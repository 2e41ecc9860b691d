"""Tests of the time model."""
