"""What an agent knows as metrics, in the form of no output: Prometheus and OpenTelemetry are made of it."""
