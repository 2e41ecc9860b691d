"""What `vramscope inspect` prints of a file, and of one moment of it."""
