"""Estimating and planning before a run; never imported by the monitor."""
