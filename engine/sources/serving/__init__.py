"""Servers of models on this node: recognized among the processes that use a device, and read over HTTP."""
