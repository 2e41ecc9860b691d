"""What all readers share: opening, unpacking, bounds, lines, YAML, TOML; and writing a file whole."""
