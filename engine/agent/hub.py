"""The hub of one node: publishes samples and findings, remembers the past, keeps the analyzers running."""

import math
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from ..alerts.desk import AlertDesk
from ..alerts.state import FindingDecision
from ..clock import Clock, SystemClock, ceil_ms
from ..errors import RuntimeFolderError, WireError
from ..history import History
from ..model import Finding, HubStatus, Sample
from ..paths import locate_root
from ..ranks.demands import Wish
from ..ranks.messages import DemandKind
from ..ranks.roster import Roster
from ..sampling.live import SampleProducer
from ..soundness import check_numbers, is_sound, mend_numbers
from ..wire.cells import trim_to_cells
from ..wire.endpoints import HubLock
from ..wire.messages import (
    TO_WHOM_IT_CONCERNS,
    TOPIC_CELLS,
    TOPIC_FINDING,
    TOPIC_HUB,
    TOPIC_SEGMENTS,
    Advised,
    Done,
    Envelope,
    FindingBatch,
    ModulesAnswer,
    Refusal,
    Rejections,
    Request,
    Welcome,
    WorkerReport,
    body_of,
    decode,
    decode_body,
    encode,
    leave_out_unchanged,
)
from ..wire.selection import RemotePeer, cut_welcome, explain_excess
from ..wire.stores import AssessmentStore, FindingStore
from .attachments import AttachmentDesk
from .hub_sockets import HubSockets
from .pace import is_urgent_sample
from .supervisor import (
    VIEWER_WITHIN_S,
    Attendance,
    OwnUsage,
    WorkerSeat,
    WorkerSupervisor,
    rss_bytes,
    shorten_report,
)

if TYPE_CHECKING:
    from ..cluster.gate import Listening

STATUS_INTERVAL_S = 1.0
USAGE_INTERVAL_S = 5.0
MAX_REASON_CHARACTERS = 300
# How long a training process may be asked to go on, or to wait for the end of a step.
MAX_WISH_S = 86_400.0

# Ticks that go into the history together: one after another they cost a third of what each costs alone.
MOST_UNWRITTEN = 8

# Seconds for which the number of the newest findings is published again: who missed them asks for all. A
# subscription may take effect after the welcome was made; what is published in between is lost.
NUMBER_REPEATS = 10


class Hub:
    """One hub; everything happens on the thread that calls `run`.

    Args:
        supervisor: Keeps the analyzer worker; None to run without analyzers.
        leaves_with_viewers: End when the last viewer and the last training process have left.
        listening: Where it listens beyond its folder; None for nowhere.
        lock: Of its folder, if the hub is to notice that the folder was removed.
    """

    def __init__(
        self,
        runtime_dir: Path,
        producer: SampleProducer,
        *,
        version: str,
        supervisor: WorkerSupervisor | None = None,
        roster: Roster | None = None,
        leaves_with_viewers: bool = False,
        first_within_s: float = VIEWER_WITHIN_S,
        linger_s: float = 0.0,
        alerts: AlertDesk | None = None,
        listening: "Listening | None" = None,
        lock: HubLock | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.hub_id = os.urandom(8).hex()
        self._clock = clock or SystemClock()
        self._producer = producer
        self._supervisor = supervisor
        self._roster = roster
        self._version = version
        self._root = str(locate_root())
        self._started_wall_s = self._clock.wall_s()
        self._attendance = Attendance(
            first_within_s=first_within_s if leaves_with_viewers else math.inf,
            linger_s=linger_s if leaves_with_viewers else math.inf,
            now_s=self._clock.monotonic_s(),
        )
        # Whether it stays when nobody is there.
        self._is_lasting = not leaves_with_viewers
        self._seat = WorkerSeat(is_open=supervisor is None, clock=self._clock)
        self._history = History()
        # The newest samples, which are not in the history yet.
        self._unwritten: list[Sample] = []
        self._findings = FindingStore()
        self._assessments = AssessmentStore()
        self._rejections = Rejections()
        self._alerts = alerts or AlertDesk()
        self._attachments = None if roster is None else AttachmentDesk(runtime_dir, self._clock)
        self._batch_number = 0
        self._repeats_left = 0
        self._shown_alerts = self._alerts.state
        self._usage = OwnUsage()
        self._cpu_percent: float | None = None
        self._rss_bytes: int | None = None
        self._usage_due_s = self._status_due_s = 0.0
        self._first_seq: int | None = None
        self._sample: Sample | None = None
        self._is_stopping = False
        # Processes that had begun to report when this was last looked at.
        self._met = 0
        self._lock = lock
        self._sockets = HubSockets(runtime_dir, self.hub_id, producer.node, listening, self._clock)

    @property
    def last_seq(self) -> int | None:
        """Number of the newest sample that was published."""
        return None if self._sample is None else self._sample.seq

    def run(self) -> None:
        """Serve until `stop` is called or, if it leaves with its viewers, until nobody is there.

        Raises:
            RuntimeFolderError: Somebody has removed the folder: nobody would find this hub any more.
        """
        self._producer.start()
        try:
            while not self._is_stopping and self._is_attended():
                self._serve_once()
        finally:
            if self._supervisor is not None:
                self._supervisor.stop()
            if self._attachments is not None:
                self._attachments.stop()
            self._producer.stop()
            self._sockets.close()

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """End soon; may be called from a signal handler."""
        self._is_stopping = True

    def _serve_once(self) -> None:
        self._sockets.wait(ceil_ms(self._producer.wait_s()))
        if self._sockets.is_called:
            self._end_calm()
        samples = self._producer.take()
        self._publish_samples(samples)
        for data in self._sockets.take_reports():
            try:
                self._accept_report(self._decode_report(decode(data)))
            except WireError as error:
                self._rejections.add("from a worker", error, self._clock.monotonic_s())
        for has_come in self._sockets.take_attendance():
            self._attendance.note_viewer(has_come=has_come)
        if self._sockets.is_stream_new:
            self._sockets.is_stream_new = False
            self._attendance.await_return(self._clock.monotonic_s())
        for peer, data in self._sockets.take_requests():
            self._handle_request(peer, data)
        if self._roster is not None and self._roster.has_answers:
            self._answer_for_ranks(self._roster)
        if self._attachments is not None:
            self._answer_for_attachments(self._attachments)
        if self._supervisor is not None and self._sample is not None:
            self._supervisor.poll()
        self._alerts.poll()
        self._publish_status(has_sample=False)
        self._sockets.flush()
        if samples:
            self._choose_pace()

    def _is_attended(self) -> bool:
        now_s = self._clock.monotonic_s()
        roster = self._roster
        if roster is None:
            return not self._attendance.is_over(now_s, has_ranks=False)
        # A process that was met since the last look may have left already.
        if not self._attendance.is_over(now_s, has_ranks=roster.is_attended or roster.met > self._met):
            self._met = roster.met
            return True
        roster.drain()  # a process may have connected since the last tick
        return not self._attendance.is_over(now_s, has_ranks=roster.is_attended or roster.met > self._met)

    def _publish_samples(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            self._publish_sample(sample)
        if samples:
            self._publish_status(has_sample=True)
        self._sockets.flush()

    def _publish_sample(self, sample: Sample) -> None:
        shortened = leave_out_unchanged(sample, self._sample)
        try:
            # What is as before was checked before.
            if not is_sound(shortened):
                sample = self._repair(sample)
                shortened = leave_out_unchanged(sample, self._sample)
        except WireError as error:
            self._rejections.add("from a source of this node", error, self._clock.monotonic_s())
            return
        if self._first_seq is None:
            self._first_seq = sample.seq
        self._sample = sample
        self._unwritten.append(sample)
        if len(self._unwritten) >= MOST_UNWRITTEN:
            self._write_history()
        self._sockets.publish_sample(sample, shortened)
        if self._sockets.has_followers(TOPIC_CELLS):
            self._sockets.publish(TOPIC_CELLS, sample)
        self._publish_findings([], has_assessed=self._assessments.observe(sample))

    def _write_history(self) -> History:
        """Return the history with all samples in it."""
        for sample in self._unwritten:
            self._history.add(sample)
        self._unwritten.clear()
        return self._history

    def _choose_pace(self) -> None:
        """Sample in calm while only a worker follows and nothing is urgent; a training process ends that."""
        sample = self._sample
        is_calm = (
            self._is_lasting
            and sample is not None
            and not self._sockets.is_followed
            and not is_urgent_sample(sample)
            and (self._roster is None or not self._roster.is_connected)
        )
        if not is_calm:
            self._end_calm()
            return
        self._producer.is_calm = True
        if self._roster is not None:
            self._sockets.watch(self._roster.fileno())

    def _end_calm(self) -> None:
        """Let the producer hold nothing back; a training process that has connected is let in."""
        if self._producer.is_calm:
            self._producer.is_calm = False
            self._sockets.watch(None)
            if self._roster is not None:
                self._roster.drain()

    def _repair(self, sample: Sample) -> Sample:
        """Return a sample that no viewer rejects: impossible values become unmeasured.

        Raises:
            WireError: It has no finite time.
        """
        mended = mend_numbers(sample)
        reason = "a value was not a number and is shown as not measured"
        self._rejections.add("from a source of this node", reason, self._clock.monotonic_s())
        return mended

    def _publish_findings(self, findings: list[Finding], *, has_assessed: bool) -> None:
        if findings or has_assessed:
            assessments = self._assessments.all() if has_assessed else None
            self._batch_number += 1
            self._repeats_left = NUMBER_REPEATS
            batch = FindingBatch(tuple(findings), assessments, self._batch_number)
            self._sockets.publish(TOPIC_FINDING, batch)

    def _publish_alerts(self) -> None:
        """Publish decisions about findings and their alerts, if they are news.

        The batch with them counts as new, so that who misses both asks for all.
        """
        state = self._alerts.state
        if state != self._shown_alerts:
            self._shown_alerts = state
            self._sockets.publish(TOPIC_FINDING, state)
            self._publish_findings([], has_assessed=True)

    def _publish_status(self, *, has_sample: bool) -> None:
        """Publish the hub's own state once a second, next to a sample to save viewers a wake-up."""
        now_s = self._clock.monotonic_s()
        if now_s < self._status_due_s - (STATUS_INTERVAL_S / 2 if has_sample else 0.0):
            return
        self._status_due_s = now_s + 1.5 * STATUS_INTERVAL_S
        self._check_folder()
        self._alerts.expire()
        self._sockets.cut_off_revoked()
        self._publish_alerts()
        if not self._sockets.is_followed:
            return
        self._sockets.publish(TOPIC_HUB, self._status())
        if self._repeats_left:
            self._repeats_left -= 1
            self._sockets.publish(TOPIC_FINDING, FindingBatch((), None, self._batch_number))

    def _check_folder(self) -> None:
        """Listen again if the file of a socket was removed.

        Raises:
            RuntimeFolderError: The folder or its lock was removed, and may be another agent's by now.
        """
        if self._lock is not None and not self._lock.is_current():
            raise RuntimeFolderError(
                f"{self._lock.path} was removed while the agent was running, so viewers can no longer "
                "find it; start `vramscope agent` again"
            )
        self._sockets.restore()
        if self._roster is not None:
            self._roster.restore()

    def _status(self) -> HubStatus:
        now_s = self._clock.monotonic_s()
        pid = self._supervisor.pid if self._supervisor is not None else None
        if now_s >= self._usage_due_s:
            self._usage_due_s = now_s + USAGE_INTERVAL_S
            percent = self._usage.cpu_percent(now_s, [] if pid is None else [pid])
            self._cpu_percent = percent if percent is not None else self._cpu_percent
            self._rss_bytes = rss_bytes()
        return HubStatus(
            hub_id=self.hub_id,
            pid=os.getpid(),
            version=self._version,
            started_s=self._started_wall_s,
            interval_s=self._producer.interval_s,
            last_seq=self.last_seq,
            cpu_percent=self._cpu_percent,
            rss_bytes=self._rss_bytes,
            viewers=self._attendance.viewers + self._sockets.remote_viewers,
            workers=self._seat.status() if self._supervisor is None else (self._supervisor.status(),),
            ticks_late=getattr(self._producer, "ticks_late", 0),
            hooks=self._alerts.hooks,
            notes=(
                *self._alerts.notes,
                *self._sockets.notes,
                *self._rejections.list_notes(now_s),
                *self._findings.notes,
                *self._assessments.notes,
            ),
            root=self._root,
        )

    def _decode_report(self, envelope: Envelope) -> WorkerReport:
        """Decode a worker's report; impossible findings are dropped and counted."""
        told = decode_body(envelope, WorkerReport)
        names = (*told.found_by, *("",) * (len(told.findings) - len(told.found_by)))
        found = [pair for pair in zip(told.findings, names, strict=False) if is_sound(pair[0])]
        report = msgspec.structs.replace(
            told,
            findings=tuple(finding for finding, _ in found),
            found_by=tuple(name for _, name in found),
            assessments=tuple(it for it in told.assessments if is_sound(it)),
        )
        check_numbers(report)
        left_out = len(told.findings) - len(found) + len(told.assessments) - len(report.assessments)
        if left_out:
            reason = f"{left_out} findings of an analyzer were dropped: impossible times or numbers"
            self._rejections.add(f"from the worker of process {told.pid}", reason, self._clock.monotonic_s())
        return report

    def _accept_report(self, report: WorkerReport) -> None:
        if self._supervisor is not None:
            self._supervisor.take_report(shorten_report(report))
        changed = self._findings.merge(report.findings, report.found_by)
        if report.open_ids is not None and self._sample is not None:
            of = report.analyzers if report.is_chosen else None
            changed += self._findings.close_others(report.open_ids, self._sample.time_s, of)
        is_anew = report.open_ids is not None and report.is_assessor
        has_forgotten = is_anew and self._assessments.begin_anew(report.pid)
        has_assessed = self._assessments.merge(report.assessments)
        if changed:
            self._alerts.take(changed)
            self._publish_alerts()  # before the findings: a viewer must know which of them are muted
        self._publish_findings(changed, has_assessed=has_forgotten or has_assessed)

    def _handle_request(self, peer: bytes, data: bytes) -> None:
        try:
            envelope = decode(data)
            if envelope.kind == "report":
                self._accept_remote_report(peer, self._decode_report(envelope))
                return
            request = body_of(envelope, Request)
        except WireError as error:
            source = "from a peer over tcp" if isinstance(peer, RemotePeer) else "from a viewer"
            self._rejections.add(source, error, self._clock.monotonic_s())
            return
        if self._sockets.is_on_its_way(peer, request):
            return
        refusal = self._sockets.refuse(peer, request)
        if refusal is not None:
            self._refuse(peer, request.request_id, refusal)
        elif (excess := explain_excess(request.devices)) is not None:
            self._refuse(peer, request.request_id, f"the list of devices {excess}")
        elif request.verb == "join":
            welcome = self._welcome(peer, request, envelope.hub_id)
            self._sockets.answer_join(peer, request, encode("welcome", self.hub_id, welcome))
        elif request.verb == "decide":
            self._decide(peer, request.request_id, request.decision)
        elif request.verb == "attach":
            self._attach(peer, request)
        elif request.verb == "leave":
            self._refuse(peer, request.request_id, "this agent is not a relay and has no nodes to remove")
        elif request.verb == "advise" and request.action is None:
            self._refuse(peer, request.request_id, "advice needs an action, for example empty_cache")
        elif self._roster is not None:
            self._roster.ask(request.pid, _make_wish(request.verb, peer, request))
        else:
            self._refuse(peer, request.request_id, "this agent plays a recording; no process reports to it")

    def _accept_remote_report(self, peer: bytes, report: WorkerReport) -> None:
        """Accept findings of a worker on another machine, if it is allowed and no other worker reports."""
        refusal = self._sockets.refuse_report(peer)
        if refusal is None:
            refusal = self._seat.refuse(
                peer.user if isinstance(peer, RemotePeer) else "", shorten_report(report)
            )
        if refusal is not None:
            self._refuse(peer, TO_WHOM_IT_CONCERNS, refusal)
        else:
            self._accept_report(report)

    def _decide(self, peer: bytes, request_id: int, decision: FindingDecision | None) -> None:
        """Carry out what a person decided about a finding, and publish it."""
        if decision is None:
            return
        time_s = self._clock.wall_s() if self._sample is None else self._sample.time_s
        refusal = self._alerts.decide(decision, self._findings.get(decision.finding_id), time_s)
        if refusal is not None:
            self._refuse(peer, request_id, refusal)
            return
        self._publish_alerts()
        self._sockets.answer(peer, encode("done", self.hub_id, Done(request_id)))

    def _attach(self, peer: bytes, request: Request) -> None:
        """Have the probe loaded into a process of this node, for whom a later turn answers."""
        if self._attachments is None:
            refusal: str | None = "this agent plays a recording; there is no process to attach to"
        else:
            refusal = self._attachments.begin(request.pid, request.started_s, (peer, request.request_id))
        if refusal is not None:
            self._refuse(peer, request.request_id, refusal)

    def _answer_for_attachments(self, desk: AttachmentDesk) -> None:
        for (peer, request_id), outcome, refusal in desk.take_answers():
            if refusal is not None:
                self._refuse(peer, request_id, refusal)
            else:
                self._sockets.answer(peer, encode("done", self.hub_id, Done(request_id, outcome)))

    def _answer_for_ranks(self, roster: Roster) -> None:
        """Pass on what probes have answered since the last turn."""
        for packed in roster.take_maps():
            self._sockets.publish(TOPIC_SEGMENTS, packed)
        for (peer, request_id), refusal, modules, advice in roster.take_answers():
            if refusal is not None:
                self._refuse(peer, request_id, refusal)
            elif modules is not None:
                answer = ModulesAnswer(request_id, modules.pid, modules.data)
                self._sockets.answer(peer, encode("modules", self.hub_id, answer))
            elif advice is not None:
                self._sockets.answer(peer, encode("advised", self.hub_id, Advised(request_id, *advice)))
            else:
                self._sockets.answer(peer, encode("done", self.hub_id, Done(request_id)))

    def _refuse(self, peer: bytes, request_id: int, reason: str) -> None:
        self._sockets.answer(peer, encode("refusal", self.hub_id, Refusal(request_id, reason)))

    def _welcome(self, peer: bytes, request: Request, known_hub_id: str) -> Welcome:
        """Return everything of the devices asked for; as cells neither past nor the rest of a sample."""
        is_full = request.detail == "full"
        sample = self._sample
        if sample is not None and self._roster is not None:
            # Whoever asks now must not hear of a probe that has gone since the newest tick.
            sample = self._roster.mark_ended(sample)
        since_seq = request.since_seq if known_hub_id == self.hub_id else None
        history = self._write_history()
        welcome = Welcome(
            request_id=request.request_id,
            sample=sample if is_full or sample is None else trim_to_cells(sample),
            findings=self._findings.all(),
            hub=self._status(),
            history=history.block(since_seq) if is_full else History().block(),
            first_seq=self._first_seq,
            history_first_seq=history.first_seq,
            assessments=self._assessments.all(),
            alerts=self._alerts.state,
            findings_number=self._batch_number,
        )
        return cut_welcome(welcome, self._sockets.find_part(peer, request))


def _make_wish(kind: DemandKind, peer: bytes, request: Request) -> Wish:
    asker = (peer, request.request_id)
    reason = None if request.reason is None else request.reason[:MAX_REASON_CHARACTERS]
    seconds = None if request.seconds is None else min(max(0.0, request.seconds), MAX_WISH_S)
    return Wish(kind, asker, request.is_on, seconds, request.action, reason)


def stop_on_signals(hub: Hub) -> None:
    """On Ctrl-C, on a polite kill and on hang-up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, hub.stop)
