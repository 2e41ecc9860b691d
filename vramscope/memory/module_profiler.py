"""`SimpleMemoryProfiler`: parameters, gradients, optimizer and activations by module, over a few steps."""

from pathlib import Path

from vramscope.engine.errors import UsageError
from vramscope.engine.files.base.output_file import explaining_writes
from vramscope.engine.probe.base.foreign import Module, Optimizer
from vramscope.engine.probe.module_memory.memory_log import EXACT_NAME, ProfileFiles
from vramscope.engine.probe.module_memory.profiler import LAYOUTS, ModuleMemoryProfiler
from vramscope.engine.probe.module_memory.torch_trace import RankPlace, initialize_llm_profile

__all__ = ["SimpleMemoryProfiler", "initialize_llm_profile"]

_OPTIONS = ("params", "grads", "os_params", "os_state", "activation_base")


class SimpleMemoryProfiler:
    """Writes the memory of a model by module: parameters, gradients, optimizer and activations.

        profiler = SimpleMemoryProfiler(model, optimizer, "memory_trace/rank0_dp0_tp0", total_steps=5)
        for batch in batches:
            train(batch)
            profiler.step()

    The folder gets `memory.log`, with sizes computed from the shapes of tensors, and `module_memory.jsonl`
    with exact bytes, computed and measured; after the last step also the charts.

    Args:
        model: A module; a `ModuleList` is read as the chunks of an interleaved pipeline.
        optimizer: An optimizer of PyTorch; None without training.
        log_folder: Folder for the files, made if it is missing; by default `memory_trace/rank{}_dp{}_tp{}`.
        total_steps: Steps after which the charts are drawn and the profile ends.

    Raises:
        UsageError: `total_steps` is not above zero.
        OutputFileError: The folder cannot be written to.
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer | None = None,
        log_folder: str | Path | None = None,
        total_steps: int = 5,
    ) -> None:
        if total_steps < 1:
            raise UsageError(f"total_steps={total_steps}: expected a number of steps above zero")
        place = RankPlace(model.parameters())
        self.log_folder = Path(place.memory_folder() if log_folder is None else log_folder)
        with explaining_writes(self.log_folder):
            files = ProfileFiles(str(self.log_folder))
            self._profiler = ModuleMemoryProfiler(model, optimizer, files, total_steps, header=place.header)

    @property
    def is_running(self) -> bool:
        """Whether the profile still follows steps."""
        return self._profiler.is_running

    def point(self, with_options: str = "", create: bool = False, *, tag: str = "point") -> None:
        """Write the memory held now.

        Args:
            with_options: Trees to write, joined by commas: `params`, `grads`, `os_params`, `os_state`,
                `activation_base`; or `all`.
            create: Replace the files instead of appending to them.
            tag: Name of the point.

        Raises:
            UsageError: An option is unknown.
            OutputFileError: The files cannot be written.
        """
        given = [option.strip() for option in with_options.split(",") if option.strip()]
        for option in given:
            if option != "all" and option not in _OPTIONS:
                raise UsageError(f"with_options: unknown {option!r}; expected {', '.join(_OPTIONS)} or all")
        chosen = tuple(option.removesuffix("_base") for option in given)
        with explaining_writes(self.log_folder):
            self._profiler.write_moment(tag, LAYOUTS if "all" in given else chosen, is_first=create)

    def step(self) -> None:
        """Count a step of the optimizer; the last one writes every tree and draws the charts.

        Raises:
            OutputFileError: The files could not be written, now or since the last step.
        """
        if not self._profiler.is_running and self._profiler.error is None:
            return
        with explaining_writes(self.log_folder):
            error = self._profiler.error
            self._profiler.error = None
            if error is not None:
                raise error
            self._profiler.end_step()
        if not self._profiler.is_running:
            self._draw()

    def close(self) -> None:
        """End the profile before its last step; the files stay, and no charts are drawn."""
        self._profiler.close()

    def _draw(self) -> None:
        from vramscope.analyzers.modules import make_breakdown
        from vramscope.engine.files.module_memory import read_module_memory
        from vramscope.exporters.modules.page import write_sunbursts

        memory = read_module_memory(self.log_folder / EXACT_NAME)
        write_sunbursts(memory, make_breakdown(memory), self.log_folder)
