"""Tests of the headless suite, run as a person runs it."""
