"""The hub's side of the probe: reports of training processes, folded into the samples of the node."""
