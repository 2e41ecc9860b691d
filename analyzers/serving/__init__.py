"""Servers of models: what their memory is for, whether their KV pool will last, and what to change."""
