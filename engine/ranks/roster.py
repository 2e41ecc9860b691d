"""The training processes of a node: who reports, what they reported, and their part of the next sample."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from ..clock import Clock, SystemClock
from ..errors import WireError
from ..model import REAL_KINDS, AllocatorReading, DeviceSample, HostSample, RankSample, Sample
from ..sources.pci import spell_address
from ..sources.processes import find_user_name
from ..unmeasured import sum_all
from .demands import Answer, Demands, Wish
from .listener import Connection, Listener, Received
from .messages import (
    AdviceTaken,
    DemandRefused,
    Goodbye,
    Hello,
    ModulesPart,
    PackedSegments,
    ProbedDevice,
    SegmentsPart,
)
from .track import ModelledDevices, Moment, Placed, ProcessKey, RankTrack

# If ticks are longer than this, sockets are emptied between them too, before they are full.
DRAIN_INTERVAL_S = 1.0
# A job of very many short processes pushes the oldest ended ones out sooner.
MAX_ENDED = 64
# A connection without a hello by then is closed.
HELLO_WITHIN_S = 5.0
REFUSAL_TOLD_S = 60.0
# How long every viewer sees the outcome of an advice, whoever gave it.
ADVICE_TOLD_S = 300.0
MAX_ADVICE_TOLD = 4
# Between two reads of the sockets while a probe owes an answer.
ANSWER_INTERVAL_S = 0.05
MAX_NAMED = 8


class Roll(NamedTuple):
    """Devices and ranks of one tick, and notes about the probes."""

    devices: tuple[DeviceSample, ...]
    ranks: tuple[RankSample, ...]
    notes: tuple[str, ...]


class Roster:
    """Everything that reports to one hub; use from the hub's thread only.

    Args:
        uid: User whose processes may report, besides root's; this process's own by default.
    """

    def __init__(
        self, folder: Path, *, node: str, clock: Clock | None = None, uid: int | None = None
    ) -> None:
        self.refused = 0
        # How often a process has begun to report, also those that have ended since.
        self.met = 0
        self._clock = clock or SystemClock()
        self._listener = Listener(folder, uid=uid)
        self._node = node
        self._placing = Placing(node)
        self._modelled = ModelledDevices()
        self._living: dict[Connection, RankTrack] = {}
        self._ended: list[RankTrack] = []
        self._places: dict[ProcessKey, str | None] = {}
        self._demands = Demands(node)
        self._met_s: dict[Connection, float] = {}
        self._drained_s = self._clock.monotonic_s()
        self._refusal: tuple[float, str] | None = None
        self._advised: list[tuple[float, str]] = []
        self._turned_away = 0
        self._turned_away_s = 0.0

    @property
    def wait_s(self) -> float:
        """How long the hub may sleep before the sockets are read again."""
        return ANSWER_INTERVAL_S if self._demands.is_waiting else DRAIN_INTERVAL_S

    def fileno(self) -> int:
        """File that can be read when a process connects; another one after `restore`."""
        return self._listener.fileno()

    @property
    def is_connected(self) -> bool:
        """Whether a process is connected, which need not have reported anything yet."""
        return bool(self._listener.connections)

    @property
    def is_attended(self) -> bool:
        return bool(self._living)

    def restore(self) -> None:
        """Listen again if the file of the socket was removed; connections stay."""
        self._listener.restore()

    def drain(self) -> None:
        """Process everything that has arrived; never blocks."""
        now_s = self._clock.monotonic_s()
        moment = Moment(now_s, self._clock.wall_s(), now_s - self._drained_s)
        self._drained_s = now_s
        for received in self._listener.drain():
            self._process(received, moment)
        if self._listener.connections:
            self._dismiss_silent(now_s)
            self._demands.expire(now_s)

    def drain_if_due(self) -> None:
        """Drain if that was not done for a while."""
        if self._clock.monotonic_s() - self._drained_s >= self.wait_s:
            self.drain()

    def collect(self, devices: Sequence[DeviceSample], host: HostSample | None) -> Roll:
        """Return a tick's devices with their ranks; devices without ranks are returned as they came."""
        self.drain()
        now_s = self._clock.monotonic_s()
        self._ended = keep_ended(self._ended, self._living.values(), now_s)
        if not self._living and not self._ended:
            return Roll(tuple(devices), (), tuple(self._make_notes(now_s)))
        tracks = (*self._living.values(), *self._ended)
        self._placing.forget(tracks)
        placed = [
            Placed(t.take(now_s, self._placing.find(t, devices)), t.hello, t.is_visible) for t in tracks
        ]
        self._places = {
            track.key: rank.report.sample.device_uuid for track, rank in zip(tracks, placed, strict=True)
        }
        ranks = [rank.report.sample for rank in placed]
        made = self._modelled.make(placed, cpu_uuid(self._node), host)
        shared = tuple(share([*devices, *made], ranks))
        return Roll(shared, order(ranks, shared), tuple(self._make_notes(now_s)))

    def ask(self, pid: int | None, wish: Wish) -> None:
        """Pass a wish on to a process; the outcome comes with `take_answers`.

        Args:
            pid: Process id in the pid namespace of the hub; or in its own, of a process that the hub does not
                see, if no other that reports has the same.
        """
        asked = [(connection, track) for connection, track in self._living.items() if track.pid == pid]
        # Among the processes that the hub sees, at most one has this pid.
        chosen = [pair for pair in asked if pair[1].is_visible] or asked
        if not chosen:
            self._refuse_unknown(pid, wish)
        elif len(chosen) > 1:
            self._demands.refuse(
                wish.asker,
                f"{len(chosen)} processes in other containers report as process {pid} and cannot be "
                "told apart: ask an agent inside the right container",
            )
        else:
            connection, track = chosen[0]
            reason = _explain_no_segments(track) if wish.kind == "segments" else _explain_age(track, wish)
            if reason is None:
                self._demands.ask(connection, track.pid, wish, self._clock.monotonic_s())
            else:
                self._demands.refuse(wish.asker, reason)

    def _refuse_unknown(self, pid: int | None, wish: Wish) -> None:
        if any(track.pid == pid for track in self._ended):
            self._demands.refuse(wish.asker, f"process {pid} has ended or was detached")
            return
        living = [str(track.pid) for track in self._living.values()]
        named = ", ".join(living[:MAX_NAMED]) + (", …" if len(living) > MAX_NAMED else "")
        others = f"those that do: {named}" if living else "none does"
        self._demands.refuse(wish.asker, f"no training process {pid} reports to this agent; {others}")

    def mark_ended(self, sample: Sample) -> Sample:
        """Return a sample in which ranks that have ended or were detached since it was made have ended."""
        self.drain()
        ended = {track.key: track for track in self._ended}
        for track in self._living.values():
            ended.pop(track.key, None)
        if all(rank.state == "ended" or _key_of(rank) not in ended for rank in sample.ranks):
            return sample
        ranks = tuple(
            replace(rank, state="ended", reason=ended[_key_of(rank)].end_reason)
            if _key_of(rank) in ended
            else rank
            for rank in sample.ranks
        )
        return replace(sample, ranks=ranks)

    @property
    def has_answers(self) -> bool:
        """`take_answers` or `take_maps` has something."""
        return self._demands.has_answers

    def take_answers(self) -> list[Answer]:
        """Return the outcomes of wishes since the last call."""
        return self._demands.take_answers()

    def take_maps(self) -> list[PackedSegments]:
        """Return the segment maps that have arrived since the last call."""
        return list(self._demands.take_maps())

    def close(self) -> None:
        """End all connections; the processes go on without a hub."""
        self._listener.close()
        self._living.clear()

    def _process(self, received: Received, moment: Moment) -> None:
        connection = received.connection
        message = received.message
        if received.is_over:
            self._met_s.pop(connection, None)
            self._end(connection, moment.monotonic_s)
            return
        if isinstance(message, Hello):
            self._greet(connection, message, moment.monotonic_s)
        track = self._living.get(connection)
        if message is None or track is None:
            self._refuse(connection, received.refused or "sent a message before its hello", moment)
            return
        if isinstance(message, SegmentsPart | ModulesPart):
            place = self._places.get(track.key)
            try:
                self._demands.take_part(connection, message, track.pid, place, moment.monotonic_s)
            except WireError as error:
                self._refuse(connection, str(error), moment)
            return
        if isinstance(message, DemandRefused):
            self._demands.take_refusal(connection, message, track.pid)
            return
        if isinstance(message, AdviceTaken):
            note = self._demands.take_advice(connection, message, track.pid)
            self._advised += [] if note is None else [(moment.monotonic_s, note)]
            return
        track.fold(message, moment)
        if isinstance(message, Goodbye):
            connection.close()
            self._end(connection, moment.monotonic_s)

    def _greet(self, connection: Connection, hello: Hello, now_s: float) -> None:
        """Begin a track, or continue that of a process which has connected again."""
        if connection in self._living:
            return
        self._met_s.pop(connection, None)
        user = find_user_name(connection.uid)
        new = RankTrack(connection.pid or hello.pid, hello, now_s, user, is_visible=connection.pid > 0)
        for other, track in tuple(self._living.items()):
            if track.is_of_process(new):
                other.close()
                self._end(other, now_s, "the process has reconnected")
        same = [track for track in self._ended if track.key == new.key]
        track = same[-1] if same else new
        if same:
            self._ended.remove(track)
            track.resume(hello)
        self._living[connection] = track
        self.met += 1

    def _end(self, connection: Connection, now_s: float, reason: str | None = None) -> None:
        track = self._living.pop(connection, None)
        if track is None:
            return
        track.end(now_s, reason)
        self._demands.note_end(connection, track.pid)
        if track.has_reported:
            self._ended = [*self._ended, track][-MAX_ENDED:]

    def _dismiss_silent(self, now_s: float) -> None:
        """Close connections that do not send a hello."""
        for connection in self._listener.connections:
            if connection in self._living:
                continue
            if now_s - self._met_s.setdefault(connection, now_s) > HELLO_WITHIN_S:
                connection.close()
        self._met_s = {c: met_s for c, met_s in self._met_s.items() if c.is_open}

    def _refuse(self, connection: Connection, reason: str, moment: Moment) -> None:
        self.refused += 1
        self._refusal = (moment.monotonic_s, f"process {connection.pid} {reason}")

    def _make_notes(self, now_s: float) -> Iterable[str]:
        if self._refusal is not None and now_s - self._refusal[0] < REFUSAL_TOLD_S:
            messages = "1 message" if self.refused == 1 else f"{self.refused:,} messages"
            yield f"{messages} from training processes rejected; the newest: {self._refusal[1]}"
        self._advised = [it for it in self._advised if now_s - it[0] < ADVICE_TOLD_S][-MAX_ADVICE_TOLD:]
        yield from (note for _, note in self._advised)
        count = self._listener.turned_away
        if count > self._turned_away:
            self._turned_away = count
            self._turned_away_s = now_s
        if count and now_s - self._turned_away_s < REFUSAL_TOLD_S:
            yield f"connections from training processes rejected (another user, or too many): {count:,}"


def _key_of(rank: RankSample) -> ProcessKey:
    return rank.pid, rank.started_s


def _explain_age(track: RankTrack, wish: Wish) -> str | None:
    if wish.kind in track.hello.demands:
        return None
    if track.hello.jax is not None:
        return (
            f"process {track.pid} is a program of JAX, for which there is no request of the kind {wish.kind}"
        )
    return (
        f"the probe of process {track.pid} is too old for {wish.kind}: restart the job, or detach it "
        "and attach again"
    )


def _explain_no_segments(track: RankTrack) -> str | None:
    backend = track.hello.backend
    if backend is None:
        return f"process {track.pid} has not used a device yet"
    if backend in ("cpu", "mps"):
        return f"process {track.pid} trains on {backend.upper()}, whose allocator reports no segments"
    return None


# On a device that a driver knows, and that stays when its processes end.
ENDED_SHOWN_S = 10.0
# On a device that ends with its processes: whoever was away meanwhile finds both.
MODELLED_SHOWN_S = 600.0


def keep_ended(ended: Sequence[RankTrack], living: Iterable[RankTrack], now_s: float) -> list[RankTrack]:
    """Return the ended processes that are still to be shown.

    One on a simulated device is replaced by the next process on such a device.
    """
    if not ended:
        return []
    newest_s = max((track.met_s for track in (*living, *ended) if track.is_modelled), default=None)
    return [track for track in ended if _is_shown(track, newest_s, now_s)]


def _is_shown(track: RankTrack, newest_s: float | None, now_s: float) -> bool:
    ended_s = track.ended_s or 0.0
    if now_s - ended_s < ENDED_SHOWN_S:
        return True
    is_followed = newest_s is not None and newest_s >= ended_s
    return track.is_modelled and not is_followed and now_s - ended_s < MODELLED_SHOWN_S


# Sort key of a process without a rank.
NO_RANK = 1 << 62


def share(devices: Sequence[DeviceSample], ranks: Sequence[RankSample]) -> list[DeviceSample]:
    """Return the devices, those with live ranks on them with their allocator data; others as they are."""
    living: dict[str | None, list[RankSample]] = {}
    for rank in ranks:
        if rank.state != "ended":
            living.setdefault(rank.device_uuid, []).append(rank)
    return [_dress(device, living.get(device.uuid, ())) for device in devices]


def order(ranks: Sequence[RankSample], devices: Sequence[DeviceSample]) -> tuple[RankSample, ...]:
    """Sort ranks by device, rank and pid; those without a device last."""
    places = {device.uuid: place for place, device in enumerate(devices)}
    return tuple(
        sorted(ranks, key=lambda r: (places.get(r.device_uuid or "", len(places)), _rank_of(r), r.pid))
    )


def _dress(device: DeviceSample, ranks: Sequence[RankSample]) -> DeviceSample:
    if not ranks:
        return device
    first = min(ranks, key=lambda rank: (_rank_of(rank), rank.pid))
    return replace(
        device,
        allocator=add_allocators([rank.allocator for rank in ranks if rank.allocator is not None]),
        rank=first.coordinates,
        step=first.step.index if first.step is not None else None,
    )


def add_allocators(readings: Sequence[AllocatorReading]) -> AllocatorReading | None:
    """Return several allocators as one; a value that one of them lacks is unknown for all.

    The most allocated within the tick is known of a single one only: several need not peak at one moment.
    """
    if len(readings) < 2:
        return readings[0] if readings else None
    return AllocatorReading(
        allocated_bytes=sum_all(it.allocated_bytes for it in readings),
        reserved_bytes=sum_all(it.reserved_bytes for it in readings),
        requested_bytes=sum_all(it.requested_bytes for it in readings),
        active_bytes=sum_all(it.active_bytes for it in readings),
        inactive_split_bytes=sum_all(it.inactive_split_bytes for it in readings),
        retries=sum_all(it.retries for it in readings),
        ooms=sum_all(it.ooms for it in readings),
    )


def _rank_of(rank: RankSample) -> int:
    return rank.coordinates.rank if rank.coordinates is not None else NO_RANK


def simulated_uuid(hello: Hello) -> str:
    """Key of the simulated device that a process reports."""
    device = hello.device or ProbedDevice(index=0)
    return device.uuid or f"sim-{hello.job or 'job'}-{device.index}"


def cpu_uuid(node: str) -> str:
    """Key of the device that represents the processors of a node."""
    return f"cpu-{node}"


class Placing:
    def __init__(self, node: str, proc: Path = Path("/proc")) -> None:
        self._node = node
        self._proc = proc
        self._visible: dict[ProcessKey, list[str] | None] = {}

    def find(self, track: RankTrack, devices: Sequence[DeviceSample]) -> str | None:
        """Return the UUID of the device of a rank; None if nothing names it for certain."""
        hello = track.hello
        if hello.is_simulated:
            return simulated_uuid(hello)
        if hello.backend == "cpu":
            return cpu_uuid(self._node)
        if hello.device is None:
            return None
        real = [device for device in devices if device.kind in REAL_KINDS]
        named = self._find_named(hello.device, real)
        holding = _find_holding(track.pid, real) if track.is_visible else []
        if named is not None:
            instances = [d.uuid for d in real if d.parent_uuid == named and d.uuid in holding]
            return instances[0] if len(instances) == 1 else named
        if len(holding) == 1:
            return holding[0]
        return self._find_visible(track, hello.device.index, real)

    def forget(self, tracks: Sequence[RankTrack]) -> None:
        kept = {track.key for track in tracks}
        self._visible = {key: value for key, value in self._visible.items() if key in kept}

    def _find_named(self, probed: ProbedDevice, devices: Sequence[DeviceSample]) -> str | None:
        uuids = {_plain(device.uuid): device.uuid for device in devices}
        if probed.uuid and (named := uuids.get(_plain(probed.uuid))) is not None:
            return named
        if not probed.pci_bus_id:
            return None
        address = spell_address(probed.pci_bus_id)
        whole = (device for device in devices if device.mig_index is None)
        return next((device.uuid for device in whole if device.pci_address == address), None)

    def _find_visible(self, track: RankTrack, ordinal: int, devices: Sequence[DeviceSample]) -> str | None:
        """Count as CUDA does, if its order and the driver's are sure to be the same."""
        whole = [device for device in devices if device.mig_index is None]
        key = track.key
        if key not in self._visible:
            self._visible[key] = self._read_visible(track.pid) if track.is_visible else None
        visible = self._visible[key]
        if not whole or visible is None or len({(d.name, d.memory.total_bytes) for d in whole}) > 1:
            return None
        words = visible or [str(device.index) for device in whole]
        word = words[ordinal] if ordinal < len(words) else ""
        if word.isdigit():
            return next((device.uuid for device in whole if device.index == int(word)), None)
        starting = [device.uuid for device in devices if word and device.uuid.startswith(word)]
        return starting[0] if len(starting) == 1 else None

    def _read_visible(self, pid: int) -> list[str] | None:
        """Return the words of a process's CUDA_VISIBLE_DEVICES: empty where unset, None where unreadable."""
        try:
            entries = (self._proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return None
        name = b"CUDA_VISIBLE_DEVICES="
        values = [entry[len(name) :].decode(errors="replace") for entry in entries if entry.startswith(name)]
        return [word.strip() for word in values[0].split(",")] if values else []


def _find_holding(pid: int, devices: Sequence[DeviceSample]) -> list[str]:
    """Return the devices whose process lists have a pid of this namespace."""
    return [
        device.uuid
        for device in devices
        if any(p.pid == pid and p.location in ("here", "container") for p in device.processes or ())
    ]


def _plain(uuid: str) -> str:
    """Drop the prefix of a UUID, which NVML has and PyTorch leaves out."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")
