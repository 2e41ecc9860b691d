"""Names for what belongs to the program and to PyTorch, and is reached by attribute only.

The probe may not import torch, not even to check types: each is `Any` to a type checker, and a word to a
reader.
"""

from __future__ import annotations

from typing import Any

Module = Any
"""A module of torch, or of a framework on top of it; also a simulated device's."""

Optimizer = Any
"""A `torch.optim.Optimizer`."""

Tensor = Any
"""A `torch.Tensor`, or something that holds such."""

Storage = Any
"""A `torch.UntypedStorage`."""

Mesh = Any
"""A `torch.distributed.DeviceMesh`."""

Properties = Any
"""What `torch.cuda.get_device_properties` returns."""

Foreign = Any
"""Whatever a call of theirs takes or returns."""
