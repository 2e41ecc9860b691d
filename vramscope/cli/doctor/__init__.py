"""What `vramscope doctor` looks at, one subject a file."""
