"""Architectures of transformers and timm that are estimated unchanged: python -m benchmarks.architectures."""
