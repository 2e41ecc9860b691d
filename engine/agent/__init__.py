"""Processes that talk: the hub, its workers and its viewers, over ZeroMQ."""
