"""Logs of training frameworks and their out-of-memory errors."""
