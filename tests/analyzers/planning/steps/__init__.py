"""Estimates of training steps of the user, without a GPU."""
