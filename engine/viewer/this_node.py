"""The source of this node's samples: its agent if one runs, else this very process."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from ..errors import HubUnreachableError, SourceUnavailableError
from ..paths import locate_runtime_folder
from ..wire.endpoints import is_hub_alive

if TYPE_CHECKING:
    from ..agent.analyzer_host import AnalyzerHost
    from ..model import Assessment, Finding, Sample
    from ..wire.stores import AssessmentStore

EXIT_DRIVER_SILENT = 5
DRIVER_SILENT = "no GPU can be read: the NVIDIA driver does not answer; see `dmesg | grep -i nvrm`"
# A driver that nobody keeps loaded takes seconds to start; one that is silent for longer hangs.
ANSWERS_WITHIN_S = 5.0


class Words(NamedTuple):
    """What analyzers reported after the newest sample."""

    findings: "tuple[Finding, ...]" = ()
    # All that are open; None if none has changed.
    assessments: "tuple[Assessment, ...] | None" = None


class LocalNode:
    """This node, sampled and analyzed by this very process; starts nothing."""

    def __init__(
        self, *, interval_s: float, memory_interval_s: float, serving: Sequence[str] | None = None
    ) -> None:
        from ..sampling.live import open_node

        self._producer = open_node(
            interval_s=interval_s, memory_interval_s=memory_interval_s, serving=serving
        )
        self._host: AnalyzerHost | None = None
        self._stored: AssessmentStore | None = None
        self._answers_until_s = 0.0
        # Analyzers that could not be loaded; known once `analyzers` ran.
        self.notes: list[str] = []

    @property
    def failures(self) -> list[SourceUnavailableError]:
        """Why there is no device, as far as the driver says."""
        return self._producer.failures

    @property
    def has_held_calls(self) -> bool:
        """A driver call has not returned; the process must then end with `os._exit`."""
        return self._producer.has_held_calls

    @property
    def is_decided(self) -> bool:
        """It is known why there is no device, or the driver has been silent for too long."""
        return bool(self.failures) or time.monotonic() >= self._answers_until_s

    @property
    def exit_code(self) -> int:
        """For the reason why there is no device."""
        return self.failures[0].exit_code if self.failures else EXIT_DRIVER_SILENT

    @property
    def sentences(self) -> list[str]:
        return [str(failure) for failure in self.failures] or [DRIVER_SILENT]

    def start(self) -> None:
        self._answers_until_s = time.monotonic() + ANSWERS_WITHIN_S
        self._producer.start()

    def take(self, timeout_s: float | None) -> "list[Sample]":
        """Return what is due next, waiting at most `timeout_s`; None waits until there is something."""
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not (samples := self._producer.take()):
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return []
            time.sleep(max(0.0, min(self._producer.wait_s(), left_s)))
        return samples

    @property
    def analyzers(self) -> "AnalyzerHost":
        """Loaded when they are first asked for."""
        if self._host is None:
            from ..agent.analyzer_host import AnalyzerHost
            from ..plugins import make_analyzers

            plugins = make_analyzers()
            self.notes += plugins.notes
            self._host = AnalyzerHost(plugins.made)
        return self._host

    @property
    def assessments(self) -> "AssessmentStore":
        if self._stored is None:
            from ..wire.stores import AssessmentStore

            self._stored = AssessmentStore()
        return self._stored

    def analyze(self, sample: "Sample") -> Words:
        findings = tuple(self.analyzers.observe(sample))
        is_changed = self.assessments.merge(self.analyzers.assess())
        is_changed = self.assessments.observe(sample) or is_changed
        return Words(findings, self.assessments.all() if is_changed else None)

    def stop(self) -> None:
        """End all reading; a call that hangs is left behind."""
        self._producer.stop()


class _Agent(Protocol):
    def close(self) -> None: ...


class _Local(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


Agent = TypeVar("Agent", bound=_Agent)
Local = TypeVar("Local", bound=_Local)


class ThisNode(Generic[Agent, Local]):
    """The agent of this node while one answers, else this process; starts no agent.

    Args:
        connect: Connects to the agent of a folder; raises `HubUnreachableError` if it does not answer.
    """

    def __init__(
        self,
        connect: Callable[[Path], Agent],
        make_local: Callable[[], Local],
        folder: Path | None = None,
    ) -> None:
        self._connect = connect
        self._make_local = make_local
        self.folder = folder or locate_runtime_folder()
        self.agent: Agent | None = None
        # The sampler in this process; None where an agent samples, and before `open`.
        self.local: Local | None = None
        # What changed about the source, for stderr.
        self.sentences: list[str] = []

    @property
    def is_agent_alive(self) -> bool:
        """An agent serves the folder, followed or not."""
        return is_hub_alive(self.folder)

    def open(self) -> None:
        """Follow the agent if one runs, else sample here; do nothing if either is so already."""
        if self.agent is not None or self.local is not None:
            return
        if self.is_agent_alive:
            try:
                self.agent = self._connect(self.folder)
            except HubUnreachableError as error:
                # One that was just ending, as after the last viewer, is as good as none.
                if self.is_agent_alive:
                    self.sentences.append(f"{error}; sampling in this process instead")
            else:
                return
        self.open_local()

    def open_local(self) -> Local:
        if self.local is None:
            self.local = self._make_local()
            self.local.start()
        return self.local

    def leave_agent(self, sentence: str | None = None) -> Local:
        """Sample in this process from here on.

        Args:
            sentence: Why, for stderr; None if that is nobody's concern.
        """
        if sentence is not None:
            self.sentences.append(sentence)
        if self.agent is not None:
            self.agent.close()
            self.agent = None
        return self.open_local()

    def follow_agent(self) -> None:
        """Follow the agent that runs by now in place of sampling here."""
        self.sentences.append("an agent is running now; following it from here on")
        self.close()
        self.agent = self.local = None
        self.open()

    def close(self) -> None:
        """Disconnect from the agent, end the threads; which of them it was can still be read."""
        if self.agent is not None:
            self.agent.close()
        if self.local is not None:
            self.local.stop()
