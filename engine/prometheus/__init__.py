"""A Prometheus server as a source: what it scraped from exporters of devices, as samples of nodes."""
