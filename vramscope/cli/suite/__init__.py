"""What the verbs of the headless suite share: flags, the watching, progress, reports, plots."""
