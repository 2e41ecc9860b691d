"""What hostile or broken peers send to a hub: rejected, bounded and told, and nobody else is shut out."""

import math
import types
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
import zmq

from vramscope.engine.agent.hub_sockets import (
    MAX_REPORTS_WAITING,
    MAX_SUBSCRIBERS,
    MAX_SUBSCRIPTION_BYTES,
    MAX_TOPICS,
    REPORTS_WITHIN_S,
    HubSockets,
)
from vramscope.engine.alerts.state import AlertState
from vramscope.engine.errors import WireError
from vramscope.engine.history import History
from vramscope.engine.model import (
    Assessment,
    DeviceSample,
    Evidence,
    Finding,
    HubStatus,
    MemoryReading,
    Sample,
)
from vramscope.engine.ranks import messages as probe_messages
from vramscope.engine.ranks.listener import decode_packet
from vramscope.engine.soundness import check_numbers, mend_numbers
from vramscope.engine.viewer.client import Client
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.endpoints import endpoints_of
from vramscope.engine.wire.messages import (
    TOPIC_VIEWER,
    FindingBatch,
    KnownNodes,
    NodeReport,
    Refusal,
    Request,
    Welcome,
    WorkerReport,
    body_of,
    decode,
    encode,
)
from vramscope.engine.wire.stores import (
    MAX_ASSESSMENTS,
    MAX_BYTES,
    MAX_CLOSED,
    MAX_FINDING_BYTES,
    MAX_OPEN,
    MAX_OPEN_OF_ANALYZER,
    AssessmentStore,
    FindingStore,
)

from ...clocks import HandClock
from ...waiting import wait_until
from ..agent.hubs import RunningHub, make_sample

KINDS: tuple[type[msgspec.Struct], ...] = (
    Sample,
    HubStatus,
    FindingBatch,
    AlertState,
    Welcome,
    WorkerReport,
    Request,
    KnownNodes,
    Refusal,
    NodeReport,
    probe_messages.Hello,
    probe_messages.Readings,
    probe_messages.Steps,
    probe_messages.OutOfMemoryMet,
)
REPORT = WorkerReport("worker", 77, 1, 0, ("leak",))


def make_finding(number: int, *, closed_s: float | None = None, title: str = "t") -> Finding:
    return Finding(
        f"f{number}", "leak", "node", "GPU-a", "0", "high", title, 1000.0 + number, 1000.0 + number, closed_s
    )


def _members(hint: object) -> list[object]:
    is_union = get_origin(hint) in (Union, types.UnionType)
    return [it for it in (get_args(hint) if is_union else (hint,)) if it is not types.NoneType]


def _make_each(hint: object, value: float, depth: int = 0) -> Iterator[object]:
    """Yield values of a type, each with the number in one of the places that may hold a float."""
    for member in _members(hint):
        if member is float:
            yield value
        elif isinstance(member, type) and issubclass(member, msgspec.Struct) and depth < 6:
            hints = get_type_hints(member)
            usual = {name: _make_usual(each) for name, each in hints.items()}
            for name, each in hints.items():
                for made in _make_each(each, value, depth + 1):
                    yield member(**usual | {name: made})
        elif get_origin(member) is tuple:
            inner = get_args(member)
            usual_items = [_make_usual(it) for it in inner if it is not Ellipsis]
            for at, each in enumerate(it for it in inner if it is not Ellipsis):
                for made in _make_each(each, value, depth + 1):
                    yield (*usual_items[:at], made, *usual_items[at + 1 :])
        elif get_origin(member) is dict:
            yield from ({"x": made} for made in _make_each(get_args(member)[1], value, depth + 1))


def _make_usual(hint: object) -> object:
    """Return a value of a type with nothing wrong."""
    if types.NoneType in get_args(hint):
        return None
    member = _members(hint)[0]
    if isinstance(member, type) and issubclass(member, msgspec.Struct):
        return member(**{name: _make_usual(each) for name, each in get_type_hints(member).items()})
    origin = get_origin(member)
    if origin is tuple:
        inner = get_args(member)
        return () if Ellipsis in inner else tuple(map(_make_usual, inner))
    if origin is dict:
        return {}
    if origin is not None:
        return get_args(member)[0]
    known: dict[object, object] = {float: 1.0, int: 1, str: "x", bytes: b"", bool: False}
    return known[member]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("kind", KINDS, ids=lambda it: it.__name__)
def test_no_float_of_any_message_may_be_none(kind: type[msgspec.Struct], value: float) -> None:
    check_numbers(_make_usual(kind))  # type: ignore[arg-type]
    for made in _make_each(kind, value):
        assert isinstance(made, msgspec.Struct)
        with pytest.raises(WireError):
            check_numbers(made)


def test_the_field_is_named_and_an_integer_beyond_every_column_is_rejected() -> None:
    device = DeviceSample("GPU-a", 0, memory=MemoryReading(used_bytes=2**63 + 5))
    sample = msgspec.structs.replace(make_sample(1), devices=(make_sample(1).devices[0], device))
    with pytest.raises(WireError, match=r"Sample\.devices\[1\]\.memory\.used_bytes is 9.22e\+18"):
        body_of(decode(encode("sample", "hub", sample)), Sample)


def test_an_integer_that_no_float_holds_is_rejected_next_to_fractions() -> None:
    device = DeviceSample("GPU-a", 0, memory=MemoryReading(used_bytes=10**400), power_w=0.5)
    with pytest.raises(WireError):
        check_numbers(msgspec.structs.replace(make_sample(1), devices=(device,)))


def test_a_number_of_our_own_that_cannot_be_is_left_unmeasured() -> None:
    device = DeviceSample("GPU-a", 0, power_w=math.inf, temperature_c=40.0)
    mended = mend_numbers(msgspec.structs.replace(make_sample(1), devices=(device,)))
    assert mended.devices == (DeviceSample("GPU-a", 0, temperature_c=40.0),)
    with pytest.raises(WireError):
        mend_numbers(msgspec.structs.replace(make_sample(1), time_s=math.nan))


@pytest.mark.parametrize(
    "packet", [b'{"kind":"hello","v":1,"pid":1,"started_s":1e300}', b'{"kind":"oom","v":1,"time_s":-1e200}']
)
def test_a_training_process_reports_no_time_that_cannot_be(packet: bytes) -> None:
    with pytest.raises(WireError, match=r"is -?1e"):
        decode_packet(packet)


def test_a_history_with_a_time_that_cannot_be_is_rejected() -> None:
    history, joined = History(), History()
    history.add(make_sample(1))
    history._fine._times[0] = math.nan
    with pytest.raises(WireError):
        joined.extend(history.block())


def _until(client: Client, is_met: object) -> Snapshot:
    assert callable(is_met)
    wait_until(lambda: bool(is_met(client.snapshot(timeout_s=0.05))), what="the viewer's picture")
    return client.newest


def _send_reports(folder: Path, *bodies: msgspec.Struct) -> None:
    context = zmq.Context()
    with context.socket(zmq.PUSH) as pusher:
        pusher.setsockopt(zmq.LINGER, 2000)
        pusher.connect(endpoints_of(folder).reports)
        for body in bodies:
            pusher.send(encode("report", "", body))
    context.term()


def test_a_report_with_times_that_are_none_shuts_no_viewer_out(private_environment: Path) -> None:
    """The sound finding next to it is taken, and viewers are told what was rejected."""
    bad = msgspec.structs.replace(make_finding(1), opened_s=math.nan)
    evil = msgspec.structs.replace(make_finding(2), evidence=(Evidence("a", math.inf),))
    risk = Assessment("node", "GPU-a", "0", math.nan, "low", "r")
    with RunningHub(private_environment) as running:
        running.producer.push([make_sample(1)])
        _send_reports(
            private_environment,
            msgspec.structs.replace(REPORT, findings=(bad, make_finding(3), evil), assessments=(risk,)),
            msgspec.structs.replace(REPORT, samples_dropped=2**63 + 1),
        )
        with Client(private_environment) as client:
            seen = _until(client, lambda it: it.hub is not None and len(it.hub.notes) == 1 and it.findings)
        with Client(private_environment) as late:
            assert [it.id for it in _until(late, lambda it: it.sample is not None).findings] == ["f3"]
    assert seen.hub is not None
    assert "2 messages were rejected" in seen.hub.notes[0]


def test_a_request_with_a_number_that_is_none_is_counted_and_the_hub_serves_on(
    private_environment: Path,
) -> None:
    with RunningHub(private_environment) as running:
        context = zmq.Context()
        with context.socket(zmq.DEALER) as asker:
            asker.connect(endpoints_of(private_environment).control)
            asker.send(encode("request", "", Request("history", 1, pid=1, seconds=math.nan)))
            asker.send(encode("request", "", Request("join", 2, devices=("0",) * 70)))
            answer = decode(asker.recv())
        context.term()
        running.producer.push([make_sample(1)])
        with Client(private_environment) as client:
            seen = _until(client, lambda it: it.hub is not None and it.hub.notes)
    assert answer.kind == "refusal"
    assert seen.hub is not None
    assert "1 message was rejected; the newest from a viewer" in seen.hub.notes[0]
    assert "Request.seconds is nan" in seen.hub.notes[0]


def test_what_a_source_cannot_have_measured_is_shown_as_unmeasured(private_environment: Path) -> None:
    device = DeviceSample("GPU-a", 0, power_w=math.nan, utilization_percent=1e9)
    with RunningHub(private_environment) as running:
        running.producer.push([msgspec.structs.replace(make_sample(1), devices=(device,))])
        with Client(private_environment) as client:
            seen = _until(client, lambda it: it.sample is not None and it.hub is not None and it.hub.notes)
    assert seen.sample is not None
    assert seen.hub is not None
    assert seen.sample.devices[0].power_w is None
    assert "from a source of this node" in seen.hub.notes[0]


def test_findings_are_bounded_in_number_for_each_analyzer_and_counted() -> None:
    store = FindingStore()
    flood = [make_finding(number) for number in range(3 * MAX_OPEN)]
    assert len(store.merge(flood, ["noisy"] * len(flood))) == MAX_OPEN_OF_ANALYZER
    assert store.merge([make_finding(10**6)], ["calm"])
    assert store.dropped == 3 * MAX_OPEN - MAX_OPEN_OF_ANALYZER
    assert "findings were dropped: at most 1,000 open" in store.notes[0]
    closed = [make_finding(number, closed_s=5000.0 + number) for number in range(3 * MAX_OPEN)]
    for finding in closed:
        store.merge([finding], ["noisy"])
    kept = store.all()
    assert len(kept) == MAX_CLOSED + 1
    assert kept[0].is_open
    assert min(it.closed_s or math.inf for it in kept) == 5000.0 + 3 * MAX_OPEN - MAX_CLOSED
    assert len(store._found_by) == len(kept)


def test_findings_are_bounded_in_size() -> None:
    store = FindingStore()
    huge = msgspec.structs.replace(
        make_finding(0, title="x" * 10**5), evidence=(Evidence("e" * 10**4, "v" * 10**4),) * 200
    )
    for number in range(600):
        store.merge([msgspec.structs.replace(huge, id=f"f{number}", closed_s=float(number))])
    sizes = [len(msgspec.msgpack.encode(it)) for it in store.all()]
    assert max(sizes) <= 2 * MAX_FINDING_BYTES
    assert sum(sizes) <= MAX_BYTES


def test_assessments_are_bounded_and_counted() -> None:
    store = AssessmentStore()
    one = Assessment("node", "GPU-a", "0", 1.0, "low", "r", pid=1)
    store.merge(msgspec.structs.replace(one, pid=pid) for pid in range(MAX_ASSESSMENTS + 7))
    store.merge([msgspec.structs.replace(one, reason="x" * 10**6)])
    assert len(store.all()) == MAX_ASSESSMENTS
    assert store.dropped == 8
    assert "8 forecasts were dropped" in store.notes[0]


def _subscribe(
    context: "zmq.Context[zmq.Socket[bytes]]", folder: Path, topics: Iterator[bytes]
) -> "zmq.Socket[bytes]":
    subscriber = context.socket(zmq.SUB)
    subscriber.setsockopt(zmq.SNDHWM, 0)
    subscriber.connect(endpoints_of(folder).stream)
    for topic in topics:
        subscriber.setsockopt(zmq.SUBSCRIBE, topic)
    return subscriber


def test_subscriptions_without_end_cost_a_bounded_memory_and_no_viewer_its_samples(
    private_environment: Path,
) -> None:
    context = zmq.Context()
    with (
        RunningHub(private_environment, leaves_with_viewers=True) as running,
        Client(private_environment) as client,
    ):
        running.producer.push([make_sample(1)])
        _until(client, lambda it: it.sample is not None)
        flood = _subscribe(
            context, private_environment, (b"%d" % number for number in range(20 * MAX_TOPICS))
        )
        seen = _until(client, lambda it: it.hub is not None and it.hub.notes)
        assert len(running.hub._sockets._topics) <= MAX_TOPICS
        running.producer.push([make_sample(2)])
        _until(client, lambda it: it.sample is not None and it.sample.seq == 2)
        wait_until(lambda: running.hub._attendance.viewers == 1, what="the viewer to be counted again")
        assert running.thread.is_alive()
        flood.close(linger=0)
        running.hub.stop()
    context.destroy(linger=0)
    assert seen.hub is not None
    assert f"subscribed to more than {MAX_TOPICS} topics" in seen.hub.notes[0]
    assert client.newest.samples_dropped == 0


def test_who_subscribes_again_and_again_is_no_crowd_of_viewers(private_environment: Path) -> None:
    context = zmq.Context()
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        running.producer.push([make_sample(1)])
        _until(client, lambda it: it.sample is not None)
        flood = _subscribe(context, private_environment, (TOPIC_VIEWER for _ in range(3 * MAX_SUBSCRIBERS)))
        seen = _until(client, lambda it: it.hub is not None and it.hub.notes)
        flood.close(linger=0)
        wait_until(lambda: running.hub._attendance.viewers == 1, what="the one viewer that is left")
    context.destroy(linger=0)
    assert seen.hub is not None
    assert f"already had {MAX_SUBSCRIBERS:,} subscriptions" in seen.hub.notes[0]


class TickingClock(HandClock):
    """A clock that moves whenever it is read."""

    def monotonic_s(self) -> float:
        self.now_s += REPORTS_WITHIN_S / 4
        return self.now_s


def test_a_flood_of_reports_takes_a_part_of_each_turn_and_none_is_lost(private_environment: Path) -> None:
    """Samples are published between two turns."""
    sockets = HubSockets(private_environment, "hub", "node", None, TickingClock())
    context = zmq.Context()
    pusher = context.socket(zmq.PUSH)
    pusher.connect(endpoints_of(private_environment).reports)
    sent = [b"%d" % number for number in range(200)]
    for data in sent:
        pusher.send(data)
    turns: list[list[bytes]] = []

    def take_turn() -> bool:
        sockets.wait(50)
        turns.append(list(sockets.take_reports()))
        return sum(map(len, turns)) == len(sent)

    wait_until(take_turn, what="all reports")
    context.destroy(linger=0)
    sockets.close()
    assert [data for turn in turns for data in turn] == sent
    assert max(map(len, turns)) <= 5


def test_reports_that_were_not_read_yet_wait_at_who_sends_them(private_environment: Path) -> None:
    sockets = HubSockets(private_environment, "hub", "node", None, HandClock())
    context = zmq.Context()
    pusher = context.socket(zmq.PUSH)
    pusher.setsockopt(zmq.SNDHWM, 1)
    pusher.setsockopt(zmq.SNDTIMEO, 1000)
    pusher.connect(endpoints_of(private_environment).reports)
    sent = 0
    with suppress(zmq.Again):
        while sent < 100:
            pusher.send(bytes(1 << 20))
            sent += 1
    context.destroy(linger=0)
    sockets.close()
    assert MAX_REPORTS_WAITING <= sent < 4 * MAX_REPORTS_WAITING


def test_a_long_subscription_is_not_kept(private_environment: Path) -> None:
    context = zmq.Context()
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        subscriber = _subscribe(context, private_environment, (bytes(5000) for _ in range(1)))
        running.producer.push([make_sample(1)])
        _until(client, lambda it: it.sample is not None)
        assert all(len(topic) < MAX_SUBSCRIPTION_BYTES for topic in running.hub._sockets._topics)
        subscriber.close(linger=0)
    context.destroy(linger=0)
