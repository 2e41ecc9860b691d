"""Tests of the classes that programs use."""
