"""The callback of vramscope in a `Trainer`: tokens of each step, and memory in the logs."""

import tempfile

import torch
from outcome import report
from transformers_trainer import make_trainer

from vramscope.callbacks.transformers import MemoryCallback


def main():
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(folder)
        MemoryCallback.add_to(trainer)
        result = trainer.train()
    logged = trainer.state.log_history[-1].get("vram/peak_allocated_gib")
    if torch.cuda.is_available() and logged != torch.cuda.max_memory_allocated() / 2**30:
        raise SystemExit(f"logged {logged} GiB, measured {torch.cuda.max_memory_allocated() / 2**30}")
    report(result.training_loss, result.global_step)


if __name__ == "__main__":
    main()
