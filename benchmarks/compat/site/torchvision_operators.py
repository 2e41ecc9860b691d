"""Lets torchvision be imported with a CPU build of PyTorch.

Its wheel is built for CUDA: without the libraries of CUDA its own operators are missing, and then so are two
that it describes without a check. Loaded at the start of each Python of the environment, by the `.pth` file
next to it; does nothing until torchvision is imported, and nothing where its operators can be loaded.
"""

import sys
from importlib.machinery import PathFinder


class Finder:
    """Defines the missing operators right before torchvision is imported; finds nothing itself."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision.extension":
            sys.meta_path.remove(self)
            spec = PathFinder.find_spec(name, path)
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _run_and_define(run, module)
            return spec
        return None


def _run_and_define(run, module):
    run(module)
    if not module._has_ops():
        import torch

        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        module._vramscope_library = library


sys.meta_path.insert(0, Finder())
