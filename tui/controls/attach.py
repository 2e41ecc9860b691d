"""Attaching to processes from the live view: which process, the question, what came of it, and the offer."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ...analyzers.verdict import Remedy
from ...engine.model import ProcessReading, RankSample, Sample
from ...engine.settings import AttachPolicy
from ...engine.text import make_printable
from ...engine.viewer.feed import AttachingFeed
from ...engine.viewer.snapshot import RankAttachment, Snapshot
from ..frame.background import run_in_background
from ..live.node_screen import NodeScreen

if TYPE_CHECKING:
    from ..app import VramscopeApp

CHOOSE_FIRST = "Select a process first: in the process list, or on the screen of its device."
NO_CANDIDATE = "No process of yours here uses PyTorch without a probe; select one to try."
NO_PROCESS = "No process on the devices here could be attached to."
READ_ONLY = "Started with --read-only: processes cannot be attached to here."
NEWS_S = 12.0
# Who a process is: its id may belong to another one later.
Identity = tuple[int, float | None]


class AttachControl:
    """Has the agent of a node attach to its processes or detach, if the feed can, and shows the outcome."""

    def __init__(self, app: "VramscopeApp", policy: AttachPolicy) -> None:
        self._app = app
        # Whether the feed can pass it on.
        self.is_offered = isinstance(app.feed, AttachingFeed)
        may_offer = self.is_offered and not app.signal_policy.is_read_only
        self._policy: AttachPolicy = policy if may_offer else "never"
        # How a person of this view gets to know more of processes without a probe.
        self.remedy: Remedy | None = "key" if may_offer else "command"
        if app.signal_policy.is_replay:
            self.remedy = None
        # Processes that were looked at for the offer.
        self._seen: set[Identity] = set()
        self._notified: dict[str, frozenset[int]] = {}

    @cached_property
    def _own_user(self) -> str:
        import os

        from ...engine.sources.processes import find_user_name

        return find_user_name(os.geteuid())

    def ask(self) -> None:
        """Ask whether to attach to the process that is selected, or to detach from it where it reports.

        Where none is selected, ask about the only process without a probe, or which of several.
        """
        app = self._app
        sample = app.shown.sample
        if app.signal_policy.is_read_only:
            app.notify(READ_ONLY, severity="warning")
        elif sample is None or (app.fleet is not None and app.fleet.is_seen):
            app.notify(CHOOSE_FIRST, timeout=4)
        elif (process := self._find_process(sample)) is not None:
            self._ask_about(process, sample)
        elif self._name_other_node(sample):
            self._choose(sample, _list_silent(sample))  # what they run is for the agent there to say
        else:
            self._keep_torch(self._list_own(sample), partial(self._choose, sample))

    def _ask_about(self, process: ProcessReading, sample: Sample) -> None:
        app = self._app
        if _find_rank(sample, process.pid) is not None:
            from ..live.attach_questions import ask_to_detach

            question = ask_to_detach(process, self._name_other_node(sample))
            app.push_screen(question, partial(self._detach, process.pid))
        elif (refusal := _refuse(process)) is not None:
            app.notify(f"{refusal}.", severity="warning", markup=False)
        elif self._name_other_node(sample):
            self._ask_to_attach(process, sample)  # whether it is possible is for the agent there to say
        else:
            run_in_background(
                app.screen,
                partial(_check, process.pid),
                then=lambda _: self._ask_to_attach(process, sample),
                otherwise=lambda error: self._refuse(process.pid, str(error)),
            )

    def offer(self, snapshot: Snapshot) -> None:
        """Attach to processes of this user, or offer it once, as the setting says."""
        sample = snapshot.sample
        if self._policy == "never" or sample is None or self._name_other_node(sample):
            return
        new = [it for it in self._list_own(sample) if _identify(it) not in self._seen]
        if new and isinstance(self._app.screen, NodeScreen):
            self._seen |= set(map(_identify, new))
            self._keep_torch(new, self._offer)

    def notify_outcomes(self, snapshot: Snapshot) -> None:
        known = self._notified.get(snapshot.node, frozenset())
        for attachment in reversed(snapshot.attachments):
            if attachment.number not in known:
                self._notify_outcome(attachment)
        if snapshot.attachments:
            self._notified[snapshot.node] = frozenset(it.number for it in snapshot.attachments)

    def _find_process(self, sample: Sample) -> ProcessReading | None:
        """Return the process that is selected in the list or shown, or else the one whose device is shown."""
        screen = self._app.screen
        if isinstance(screen, NodeScreen) and screen.focused is screen.processes:
            row = screen.processes.selected_row
            return None if row is None else row.process
        if self._app.process_screen is not None:
            return self._app.process_screen.row.process
        pid = self._app.looked_at[1] if screen is self._app.device_screen else None
        processes = (it for device in sample.devices for it in device.processes or ())
        found = next((it for it in processes if it.pid == pid), None)
        return found or (None if pid is None else ProcessReading(pid=pid))

    def _keep_torch(
        self, processes: list[ProcessReading], then: Callable[[list[ProcessReading]], None]
    ) -> None:
        """Read in the background which processes of this node use PyTorch, and call `then` with these."""
        run_in_background(
            self._app.screen,
            lambda: [it for it in processes if _uses_torch(it.pid)],
            then=then,
            otherwise=lambda error: self._app.notify(str(error), markup=False),
        )

    def _choose(self, sample: Sample, processes: list[ProcessReading]) -> None:
        """Ask about the only process, or about the one that is chosen of several, or about all of them."""
        if len(processes) == 1:
            self._ask_about(processes[0], sample)
        elif processes:
            from ..live.attach_questions import choose_process

            question = choose_process(processes, self._name_other_node(sample))
            self._app.push_screen(question, partial(self._ask_chosen, sample, processes))
        else:
            self._app.notify(NO_PROCESS if self._name_other_node(sample) else NO_CANDIDATE, timeout=6)

    def _ask_chosen(self, sample: Sample, processes: list[ProcessReading], chosen: str | None) -> None:
        if chosen is None:
            return
        found = [it for it in processes if str(it.pid) == chosen]
        if found:
            self._ask_about(found[0], sample)
        else:
            self._ask_about_several(processes, self._name_other_node(sample))

    def _ask_about_several(self, processes: list[ProcessReading], node: str = "") -> None:
        from ..live.attach_questions import ask_to_attach_to_several

        self._app.push_screen(ask_to_attach_to_several(processes, node), partial(self._attach, processes))

    def _name_other_node(self, sample: Sample) -> str:
        """Return the name of the node shown; empty where its processes are those of this machine."""
        local = self._app.signal_policy.local_node
        return "" if local is None or local == sample.node else sample.node

    def _ask_to_attach(self, process: ProcessReading, sample: Sample) -> None:
        from ..live.attach_questions import ask_to_attach

        question = ask_to_attach(process, self._name_other_node(sample))
        self._app.push_screen(question, partial(self._attach, [process]))

    def _attach(self, processes: list[ProcessReading], is_wanted: bool | None) -> None:
        feed = self._app.feed
        if not is_wanted or not isinstance(feed, AttachingFeed):
            return
        for process in processes:
            feed.attach(process.pid, process.started_s)
        which = f"process {processes[0].pid}" if len(processes) == 1 else f"{len(processes)} processes"
        self._app.notify(f"Attaching to {which}.", markup=False)

    def _detach(self, pid: int, is_wanted: bool | None) -> None:
        feed = self._app.feed
        if is_wanted and isinstance(feed, AttachingFeed):
            feed.detach(pid)

    def _refuse(self, pid: int, reason: str) -> None:
        self._notify_refusal("Not attached", pid, reason)

    def _notify_refusal(self, said: str, pid: int, reason: str) -> None:
        # Most reasons name the process; once is enough where the alerts line is short.
        text = make_printable(reason)
        if not text.startswith(f"process {pid} "):
            text = f"process {pid}: {text}"
        self._app.notify(f"{said}: {text}.", severity="warning", timeout=NEWS_S, markup=False)

    def _notify_outcome(self, it: RankAttachment) -> None:
        if it.refusal is not None and it.verb == "attach":
            self._refuse(it.pid, it.refusal)
        elif it.refusal is not None:
            self._notify_refusal("Not detached", it.pid, it.refusal)
        else:
            text = make_printable(it.outcome) or f"process {it.pid} no longer reports"
            self._app.notify(f"{text[:1].upper()}{text[1:]}.", timeout=NEWS_S, markup=False)

    def _list_own(self, sample: Sample) -> list[ProcessReading]:
        return [it for it in _list_silent(sample) if it.user == self._own_user]

    def _offer(self, processes: list[ProcessReading]) -> None:
        if not processes:
            return
        if self._policy == "mine":
            self._attach(processes, is_wanted=True)
            return
        self._policy = "never"  # once is enough
        self._ask_about_several(processes)


def _identify(process: ProcessReading) -> Identity:
    return process.pid, process.started_s


def _find_rank(sample: Sample, pid: int) -> RankSample | None:
    return next((rank for rank in sample.ranks if rank.pid == pid and rank.state != "ended"), None)


def _list_silent(sample: Sample) -> list[ProcessReading]:
    """Return the processes on devices that do not report and to which someone could attach, each once."""
    found = {
        it.pid: it
        for device in sample.devices
        for it in device.processes or ()
        if _refuse(it) is None and _find_rank(sample, it.pid) is None
    }
    return list(found.values())


def _refuse(process: ProcessReading) -> str | None:
    """Return why nobody on the node can attach to a process, in one sentence without its full stop."""
    if process.location == "outside":
        return (
            f"Process {process.pid} runs outside this container: run `vramscope attach PID` there, where its "
            "id is valid"
        )
    if process.location == "gone":
        return f"Process {process.pid} has exited; the driver or a child process still holds its memory"
    return None


def _check(pid: int) -> None:
    """Raise the reason why a process of this node cannot be attached to; reads its files only."""
    from ...engine.jobs.attach import check_attachable

    check_attachable(pid)


def _uses_torch(pid: int) -> bool:
    from ...engine.jobs.attach import has_torch

    return has_torch(pid)
