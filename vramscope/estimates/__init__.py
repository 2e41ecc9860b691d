"""Estimates of training steps for programs: the user's own step, traced without a GPU."""
