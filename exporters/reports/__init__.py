"""Reports of the headless suite: what a period of samples said, as JSON, as text and as files."""
