"""Names for objects of the program and of PyTorch, which are reached by attribute only.

The probe may not import torch, not even to check types: each is `Any` to a type checker, and a word to a
reader.
"""

from __future__ import annotations

from typing import Any

# A module of torch, or of a framework on top of it; also a simulated device's.
Module = Any

# `torch.optim.Optimizer`
Optimizer = Any

# `torch.Tensor`, or something that contains such.
Tensor = Any

# `torch.UntypedStorage`
Storage = Any

# `torch.distributed.DeviceMesh`
Mesh = Any

# Result of `torch.cuda.get_device_properties`.
Properties = Any

# Any argument or result of their calls.
Foreign = Any
