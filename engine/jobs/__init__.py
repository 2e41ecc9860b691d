"""Jobs with the probe: starting one with it, and the way into one that runs already."""
