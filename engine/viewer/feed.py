"""What feeds a screen: a thread that emits frozen snapshots, and their history."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..alerts.state import FindingDecision
from ..history import History
from ..model import AdviceAction
from .snapshot import Snapshot

if TYPE_CHECKING:
    from .picture import NodePicture

STOPS_WITHIN_S = 0.5


class Feed(Protocol):
    """A source of snapshots for one viewer."""

    # What was seen so far, backfill included; safe to read from any thread.
    history: History

    def start(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        """Call `on_snapshot` from a thread of the feed's own whenever there is something new."""
        ...

    def ask_segments(self, pid: int) -> None:
        """Ask for the segment map of a training process, from any thread; returns at once.

        It comes with a later snapshot, in `segment_maps`, or the reason why not, in `segments_refused`.
        """
        ...

    def ask_modules(self, pid: int) -> None:
        """Ask for the memory by module of a training process, from any thread; returns at once.

        It comes with a later snapshot, in `modules`, or the reason why not.
        """
        ...

    def decide(self, decision: FindingDecision) -> None:
        """Acknowledge a finding, mute its kind on its device, or undo that, from any thread; returns at once.

        A later snapshot shows it in `alerts`, or why not in `decision_refused`.
        """
        ...

    def stop(self) -> None:
        """End the thread and close the connection; returns within half a second."""
        ...


@runtime_checkable
class AdvisingFeed(Protocol):
    """A feed that passes advice on to training processes."""

    def advise(self, pid: int, action: AdviceAction, reason: str) -> None:
        """Ask a training process to do something about its memory, from any thread; returns at once.

        Its answer comes with a later snapshot, in `advice`.
        """
        ...


@runtime_checkable
class AttachingFeed(Protocol):
    """A feed whose agent loads the probe into processes, and removes it."""

    def attach(self, pid: int, started_s: float | None) -> None:
        """Have the probe loaded into a process, from any thread; returns at once.

        A later snapshot says in `attachments` what came of it.
        """
        ...

    def detach(self, pid: int) -> None:
        """Have the probe removed from a process, from any thread; returns at once, as `attach`."""
        ...


@runtime_checkable
class ChoosingFeed(Protocol):
    """A feed that follows only some of the known nodes."""

    @property
    def nodes_left_out(self) -> int:
        """Known nodes that are not followed, because nobody asked for them; from any thread."""
        ...


@runtime_checkable
class SeveralNodesFeed(Feed, Protocol):
    """A feed of several nodes, each named in its own snapshots."""

    def history_of(self, node: str) -> History:
        """What was seen so far of a node; safe to read from any thread."""
        ...

    def look_at(self, node: str) -> None:
        """Focus a node, from any thread: later questions go there."""
        ...


class BaseFeed(ABC):
    """The thread of a feed: begins with `start`, ends with `stop`, and emits snapshots."""

    history: History

    def __init__(self, name: str) -> None:
        self._on_snapshot: Callable[[Snapshot], None] = lambda _: None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        self._on_snapshot = on_snapshot
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join(timeout=STOPS_WITHIN_S)

    @abstractmethod
    def _run(self) -> None:
        """Emit snapshots until `_stopped` is set."""

    @abstractmethod
    def _wake(self) -> None:
        """Make the thread check `_stopped` and its questions; called from any thread."""


class AskingFeed(BaseFeed):
    """A feed whose thread passes questions on to the agent of a node."""

    def ask_segments(self, pid: int) -> None:
        self._ask(lambda picture: picture.ask_segments(pid))

    def ask_modules(self, pid: int) -> None:
        self._ask(lambda picture: picture.ask_modules(pid))

    def advise(self, pid: int, action: AdviceAction, reason: str) -> None:
        self._ask(lambda picture: picture.advise(pid, action, reason=reason))

    def attach(self, pid: int, started_s: float | None) -> None:
        self._ask(lambda picture: picture.ask_attach(pid, started_s))

    def detach(self, pid: int) -> None:
        self._ask(lambda picture: picture.ask_detach(pid))

    def decide(self, decision: FindingDecision) -> None:
        self._ask(lambda picture: picture.decide(decision))

    @abstractmethod
    def _ask(self, question: "Callable[[NodePicture], object]") -> None:
        """Make the thread of the feed ask a question; called from any thread."""
