"""What an agent knows, pushed by OTLP: names of OpenTelemetry where it has some, else ours."""
