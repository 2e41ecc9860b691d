"""The callback of vramscope in Lightning, with accumulation and a logger of files."""

import csv
import tempfile
from pathlib import Path

import lightning
import torch
from language import Tokens
from lightning.pytorch.loggers import CSVLogger
from lightning_fit import Module
from outcome import report

from vramscope.callbacks.lightning import MemoryCallback


def main():
    lightning.seed_everything(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=1,
            limit_train_batches=8,
            accumulate_grad_batches=2,
            logger=CSVLogger(folder),
            callbacks=[MemoryCallback()],
            log_every_n_steps=2,
            enable_progress_bar=False,
            enable_checkpointing=False,
        )
        trainer.fit(Module(), torch.utils.data.DataLoader(Tokens(), batch_size=4))
        (path,) = Path(folder).rglob("metrics.csv")
        with path.open() as lines:
            rows = list(csv.DictReader(lines))
    logged = [row for row in rows if row.get("vram/peak_allocated_gib")]
    if len(logged) != (2 if torch.cuda.is_available() else 0):
        raise SystemExit(f"memory was logged {len(logged)} times")
    report(trainer.callback_metrics["loss"], trainer.global_step)


if __name__ == "__main__":
    main()
