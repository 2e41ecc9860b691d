"""The hub's side of the probe: what training processes report, folded into the samples of the node."""
