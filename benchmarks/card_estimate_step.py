"""A training step of the timm model that VRAMSCOPE_BENCH_MODEL names, for `vramscope estimate --factory`."""

import os
from collections.abc import Callable
from importlib import import_module

import torch


def make_step(batch_size: int) -> Callable[[], object]:
    """Return a step of the whole network in fp32 with SGD and momentum, on images of its default size."""
    torch.backends.cudnn.benchmark = bool(os.environ.get("VRAMSCOPE_BENCH_TRIES"))
    # Not among the packages of the project.
    timm = import_module("timm")
    model = timm.create_model(os.environ["VRAMSCOPE_BENCH_MODEL"]).cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.zeros(batch_size, *model.default_cfg.get("input_size", (3, 224, 224)), device="cuda")
    labels = torch.zeros(batch_size, dtype=torch.long, device="cuda")

    def step() -> object:
        optimizer.zero_grad()
        found = model(images)
        found = found[0] if isinstance(found, (list, tuple)) else found
        loss = torch.nn.functional.cross_entropy(found, labels)
        loss.backward()
        optimizer.step()
        return loss

    return step
