"""Devices of many nodes as one list: who is there, how near each is to running out, which pass a filter."""
