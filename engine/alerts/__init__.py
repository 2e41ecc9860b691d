"""Telling people of findings: what crosses a line, what was decided about each, the hooks that are told."""
