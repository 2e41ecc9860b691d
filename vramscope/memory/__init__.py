"""Memory watched for a while: streams of samples, what analyzers make of them, and classes for programs."""
