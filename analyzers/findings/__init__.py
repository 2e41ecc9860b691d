"""Shared by all analyzers that open findings: the life of a finding, its evidence, and its subject."""
