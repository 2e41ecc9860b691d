"""What all analyzers that open findings share: how a finding lives, its evidence, and whom it is about."""
