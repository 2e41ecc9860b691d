"""What an agent knows, for Prometheus to scrape: families of metrics, their text, and the server of it."""
