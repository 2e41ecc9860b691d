"""A callback for the `Trainer` of transformers, and of libraries that build on it."""

from typing import Any

import transformers

from .marks import StepMarks


class MemoryCallback(transformers.TrainerCallback):
    """Ends a step for the probe with its tokens and samples, and adds memory to the logs of a `Trainer`.

        MemoryCallback.add_to(trainer)

    Passed as `callbacks=[MemoryCallback()]` it ends steps as well, but a `Trainer` calls it after its own
    loggers (TensorBoard, W&B, MLflow), which then do not get the memory.
    """

    def __init__(self) -> None:
        self._marks = StepMarks()
        self._hook: Any = None

    @classmethod
    def add_to(cls, trainer: transformers.Trainer) -> "MemoryCallback":
        """Add a callback to a trainer, ahead of its loggers, and return it."""
        callback = cls()
        trainer.callback_handler.callbacks.insert(0, callback)
        return callback

    def on_train_begin(
        self,
        args: Any,  # noqa: ANN401 - of transformers, as all arguments of this class
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        model: Any = None,  # noqa: ANN401
        **_: object,
    ) -> None:
        """Start the probe, and see the shapes that the model is called with."""
        self._marks.begin()
        # A compiled model would be compiled with the hook.
        if model is not None and not getattr(args, "torch_compile", False):
            self._hook = model.register_forward_pre_hook(self._note_inputs, with_kwargs=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:  # noqa: ANN401
        """End the step."""
        self._marks.end_step()

    def on_log(
        self,
        args: Any,  # noqa: ANN401
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        logs: dict[str, Any] | None = None,
        **_: object,
    ) -> None:
        """Add the memory to what is logged, and to the history of logs."""
        found = self._marks.read()
        if logs is not None:
            logs.update(found)
        if getattr(state, "log_history", None):
            state.log_history[-1].update(found)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: object) -> None:  # noqa: ANN401
        """Look at the model no longer."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _note_inputs(self, model: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> None:  # noqa: ANN401
        if model.training:
            self._marks.note_micro_batch(kwargs or args)
