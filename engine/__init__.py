"""What carries data: the model, sources, sampling, history, and the bus between processes."""
