"""Tests of the reports of the headless suite."""
