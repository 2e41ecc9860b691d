"""Callbacks for the training loops of frameworks: `transformers`, `lightning`, `keras`."""
