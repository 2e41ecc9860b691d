"""Training by phase: what runs in the process that trains for `vramscope phases`, and its reports."""
