"""Training with a fault put in, to be recorded: python -m benchmarks.faulty_training FAULT --onset S.

Run by `record_verdict_runs` under `vramscope run --simulate`: a tiny GPT, random tokens, a step each third of
a second. What it prints are the labels: when the fault began, and when memory ran out.
"""

import argparse
import importlib
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

WORKLOADS = Path(__file__).resolve().parents[1] / "engine" / "workloads"
VOCABULARY, WIDTH, LAYERS, BATCH, LENGTH = 512, 64, 2, 2, 64
LENGTHS = range(16, LENGTH + 1, 4)
PACE_S = 0.35
EVALUATE_EVERY_S = 10.0
CACHED = 12


class Training:
    """The model, its optimizer, and what a fault keeps."""

    def __init__(self, *, is_private: bool) -> None:
        sys.path.insert(0, str(WORKLOADS))
        small_gpt: Any = importlib.import_module("small_gpt")
        torch.manual_seed(1)
        plain = small_gpt.SmallGPT(VOCABULARY, WIDTH, LAYERS, 4, LENGTH)
        plain.head = torch.nn.Linear(
            WIDTH, VOCABULARY, bias=False
        )  # of its own: Opacus knows no shared weight
        self.model: Any = plain.to("cuda")
        self.blocks = list(self.model.blocks)
        if is_private:
            self.model = importlib.import_module("opacus").GradSampleModule(_spread_places(plain))
        self.loss: Any = small_gpt.language_loss
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.kept: list[object] = []
        self.cache: OrderedDict[int, object] = OrderedDict()
        self.evaluated_s = time.monotonic()
        self._random = random.Random(1)

    def make_batch(self, length: int) -> torch.Tensor:
        """Return random tokens of some length."""
        return torch.randint(VOCABULARY, (BATCH, length), device="cuda")

    def draw_length(self) -> int:
        """Return a length by chance."""
        return self._random.choice(LENGTHS)

    def step(self, length: int = LENGTH, *, keeps_graph: bool = False) -> torch.Tensor:
        """Train on one batch and return its loss."""
        tokens = self.make_batch(length)
        loss: torch.Tensor = self.loss(self.model(tokens), tokens)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward(retain_graph=keeps_graph)
        self.optimizer.step()
        return loss


def _spread_places(model: torch.nn.Module) -> torch.nn.Module:
    """Let each sample have its own positions: Opacus asks for a gradient of each."""

    def forward(tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        hidden = model.tokens(tokens) + model.positions(places)
        for block in model.blocks:
            hidden = block(hidden)
        logits: torch.Tensor = model.head(model.norm(hidden))
        return logits

    model.forward = forward
    return model


def keep_losses(training: Training, *, is_faulty: bool) -> None:
    """Append each loss to a list, and with it its graph, which the backward pass was asked to keep."""
    loss = training.step(keeps_graph=is_faulty)
    if is_faulty:
        training.kept.append(loss)


def keep_losses_of_lengths(training: Training, *, is_faulty: bool) -> None:
    """The same, on batches of all lengths."""
    loss = training.step(training.draw_length(), keeps_graph=is_faulty)
    if is_faulty:
        training.kept.append(loss)


def retain_hooks(training: Training, *, is_faulty: bool) -> None:
    """Keep the output of every block by a hook, each step one more."""
    hooks = []
    if is_faulty:
        hooks = [
            block.register_forward_hook(lambda _, __, out: training.kept.append(out))
            for block in training.blocks
        ]
    training.step(training.draw_length())
    for hook in hooks:
        hook.remove()


def grow_cache(training: Training, *, is_faulty: bool) -> None:
    """Cache queries, keys and values of every sequence that was ever seen; a healthy cache has a bound."""
    length = training.draw_length()
    hidden = torch.zeros(BATCH, length, WIDTH, device="cuda")
    with torch.no_grad():
        training.cache[len(training.kept)] = [block.qkv(hidden) for block in training.blocks]
    training.kept.append(None)
    while not is_faulty and len(training.cache) > CACHED:
        training.cache.popitem(last=False)
    training.step(length)


def evaluate_with_grad(training: Training, *, is_faulty: bool) -> None:
    """Evaluate every ten seconds: without no_grad, and what comes out is kept with its graph."""
    if time.monotonic() - training.evaluated_s >= EVALUATE_EVERY_S:
        training.evaluated_s = time.monotonic()
        with torch.set_grad_enabled(is_faulty):
            outputs = [training.model(training.make_batch(LENGTH)) for _ in range(10)]
        if is_faulty:
            training.kept.extend(outputs)
    training.step()


def keep_grad_samples(training: Training, *, is_faulty: bool) -> None:
    """Leave `grad_sample` where it is: a plain optimizer does not clear it, and Opacus adds to it."""
    training.step()
    if not is_faulty:
        for parameter in training.model.parameters():
            parameter.grad_sample = None


FAULTS: dict[str, Callable[..., None]] = {
    "kept_losses": keep_losses,
    "variable_lengths": keep_losses_of_lengths,
    "retained_hooks": retain_hooks,
    "growing_cache": grow_cache,
    "eval_with_grad": evaluate_with_grad,
    "grad_sample_kept": keep_grad_samples,
}


def main() -> None:
    """Train until memory or time is out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--onset", type=float, default=60.0, help="seconds of healthy steps before (60)")
    parser.add_argument("--seconds", type=float, default=900.0, help="most seconds of training (900)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training = Training(is_private=options.fault == "grad_sample_kept")
    started_s, is_faulty = time.monotonic(), False
    try:
        while (passed_s := time.monotonic() - started_s) < options.seconds:
            if not is_faulty and passed_s >= options.onset:
                is_faulty = True
                print(f"onset {time.time()}", flush=True)
            begun_s = time.monotonic()
            FAULTS[options.fault](training, is_faulty=is_faulty)
            time.sleep(max(0.0, PACE_S - (time.monotonic() - begun_s)))
    except torch.OutOfMemoryError:
        print(f"oom {time.time()}", flush=True)


if __name__ == "__main__":
    main()
