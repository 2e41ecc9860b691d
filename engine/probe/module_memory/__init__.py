"""Memory by module, weighed inside the process that trains: what a model's tensors hold and what shapes say.

Pure standard library like the rest of the probe, and loaded with it or imported as a part of vramscope. torch
is reached by attribute only: whoever has a model has imported it.
"""
