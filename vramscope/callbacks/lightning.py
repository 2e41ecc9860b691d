"""A callback for the `Trainer` of Lightning (`lightning` or `pytorch_lightning`)."""

import sys
from typing import TYPE_CHECKING, Any

from .marks import StepMarks

if TYPE_CHECKING or "pytorch_lightning" not in sys.modules:
    from lightning.pytorch import Callback
else:
    from pytorch_lightning import Callback


class MemoryCallback(Callback):
    """Ends a step for the probe with its size, and logs memory with the metrics of the module.

    trainer = Trainer(callbacks=[MemoryCallback()])
    """

    def __init__(self) -> None:
        self._marks = StepMarks()
        self._steps_ended = 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401 - of Lightning, as all here
        """Start the probe."""
        self._marks.begin()
        self._steps_ended = trainer.global_step

    def on_train_batch_end(
        self,
        trainer: Any,  # noqa: ANN401
        pl_module: Any,  # noqa: ANN401
        outputs: Any,  # noqa: ANN401
        batch: Any,  # noqa: ANN401
        batch_idx: int,
    ) -> None:
        """End the step if an optimizer has made one, and log the memory where Lightning logs."""
        self._marks.note_micro_batch(batch)
        if trainer.global_step == self._steps_ended:
            return
        self._steps_ended = trainer.global_step
        self._marks.end_step()
        if trainer.loggers and self._steps_ended % trainer.log_every_n_steps == 0:
            found = self._marks.read()
            for logger in trainer.loggers if found else ():
                # Lightning numbers the steps of its own metrics from 0.
                logger.log_metrics(found, step=self._steps_ended - 1)
