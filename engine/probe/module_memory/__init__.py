"""Memory by module, measured inside the process that trains: from the tensors of a model and their shapes.

Pure standard library like the rest of the probe, and loaded with it or imported as a part of vramscope. torch
is reached by attribute only: whoever has a model has imported it.
"""
