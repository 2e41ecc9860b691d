"""The viewer's end: the picture of a node, kept up to date from its hub."""
