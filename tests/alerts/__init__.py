"""Alerts: crossings, decisions, hooks."""
