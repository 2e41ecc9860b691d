"""Reports of the headless suite: a period of samples, as JSON, as text and as files."""
