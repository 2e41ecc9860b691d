"""Memory of this process in TensorBoard, Weights & Biases or MLflow, from a training loop of one's own."""

from typing import Any

from .marks import StepMarks

EXPECTED = "a SummaryWriter of TensorBoard, a run of Weights & Biases, or the module mlflow"
STEP = "vram/step"


class MemoryLog:
    """Ends each step for the probe, and logs memory of this process to one or several loggers.

        log = MemoryLog(SummaryWriter("runs/1"), wandb.init(project="p"), mlflow)
        for batch in loader:
            …
            log.step(batch=len(batch))

    Args:
        loggers: `torch.utils.tensorboard.SummaryWriter` or anything with its `add_scalar`; what `wandb.init`
            returns; the module `mlflow`, which logs to its active run.
        every: Steps from one entry to the next.

    Raises:
        TypeError: One of them is no such logger.
    """

    def __init__(self, *loggers: Any, every: int = 10) -> None:  # noqa: ANN401 - of three libraries
        self._writers = [_find_writer(logger) for logger in loggers]
        self._every = max(1, every)
        self._steps = 0
        self._marks = StepMarks()
        self._marks.begin()

    def step(self, *, tokens: int | None = None, batch: int | None = None) -> None:
        """End a training step, with the sizes of its largest micro-batch where they are known.

        Memory is read and logged at every `every`th step; without a device nothing is logged.
        """
        self._marks.end_step(tokens, batch)
        self._steps += 1
        if self._steps % self._every:
            return
        found = self._marks.read()
        for write in self._writers if found else ():
            write(found, self._steps)


def _find_writer(logger: Any) -> Any:  # noqa: ANN401
    """Return what writes values of one step to a logger, known by what it offers: nothing is imported."""
    if callable(getattr(logger, "add_scalar", None)):

        def write_scalars(found: dict[str, float], step: int) -> None:
            for name, value in found.items():
                logger.add_scalar(name, value, step)

        return write_scalars
    if callable(getattr(logger, "log_metrics", None)):
        return lambda found, step: logger.log_metrics(found, step=step)
    if callable(getattr(logger, "log", None)) and callable(getattr(logger, "define_metric", None)):
        # With an axis of their own the values stay in order, however often the program logs itself.
        logger.define_metric(STEP)
        logger.define_metric("vram/*", step_metric=STEP)
        return lambda found, step: logger.log({**found, STEP: step})
    raise TypeError(f"cannot log memory to {type(logger).__name__}: expected {EXPECTED}")
