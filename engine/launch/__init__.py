"""Starting a job with the probe: its environment, a hub to report to, and the step into its command."""
