"""Jobs with the probe: starting one with it, and attaching it to one that runs already."""
