"""Fuzzing of all that reads files of others: `python -m tests.fuzz`, and what it has found as tests."""
