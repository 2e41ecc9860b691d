"""Prints the outcome of a script that says none itself: PyTorch's examples are run as they are.

Loaded at the start of each Python of the environment, by the `.pth` file next to it; does nothing without
COMPAT_OUTCOME, and then nothing until PyTorch's optimizers are imported.
"""

import atexit
import json
import os
import sys
from importlib.machinery import PathFinder

_OPTIMIZERS = "torch.optim.optimizer"


class Finder:
    """Calls `Watch` right after PyTorch's optimizers are imported; finds nothing itself."""

    def find_spec(self, name, path=None, target=None):
        if name != _OPTIMIZERS:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def run_and_watch(module):
            run(module)
            Watch(module)

        spec.loader.exec_module = run_and_watch
        return spec


class Watch:
    """Counts the steps of all optimizers, and keeps the last loss."""

    def __init__(self, optimizers):
        import torch

        self._steps = 0
        self._loss = None
        # Most examples set no seed, and PyTorch begins with another each time.
        torch._C.default_generator.manual_seed(0)
        optimizers.register_optimizer_step_post_hook(self._count)
        go_back = torch.Tensor.backward

        def backward(tensor, *args, **kwargs):
            self._loss = tensor.detach()
            return go_back(tensor, *args, **kwargs)

        torch.Tensor.backward = backward
        atexit.register(self._print)

    def _count(self, *_):
        self._steps += 1

    def _print(self):
        import torch

        # A script that starts its ranks itself has no variable for them; each has a card of its own.
        rank = os.environ.get("RANK", "0")
        is_first = rank == "0" and (not torch.cuda.is_initialized() or torch.cuda.current_device() == 0)
        if self._steps == 0 or not is_first:
            return
        found = {"loss": float(self._loss), "steps": self._steps}
        if torch.cuda.is_initialized():
            found["peak_bytes"] = torch.cuda.max_memory_allocated()
        # At once, so that no line of another rank comes in between.
        sys.stdout.write(f"\noutcome {json.dumps(found)}\n")
        sys.stdout.flush()


if os.environ.get("COMPAT_OUTCOME"):
    sys.meta_path.insert(0, Finder())
