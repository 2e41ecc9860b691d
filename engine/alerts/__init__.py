"""Alerting people of findings: crossings, decisions about them, and hooks."""
