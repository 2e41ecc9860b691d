"""Errors of devices that drivers report, and memory errors: what they mean, and what to do."""
