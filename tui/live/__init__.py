"""The live view of one node."""
