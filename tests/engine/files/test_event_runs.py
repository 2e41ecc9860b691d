"""Events that are read at once come to the same as those that are unpickled one by one."""

import gzip
import io
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.engine.files.snapshots import BASE, EMBED, LINEAR, MIB, block, event, frame, segment, snapshot
from vramscope.engine.files.base.packed_file import GzipStream
from vramscope.engine.files.memory_snapshot import MemorySnapshot
from vramscope.engine.files.memory_snapshot import decoder as decoder_module
from vramscope.engine.files.memory_snapshot.decoder import decode
from vramscope.engine.files.memory_snapshot.event_runs import OtherFormError, read_at_once, read_framed
from vramscope.engine.files.memory_snapshot.reader import decode_reply

Row = dict[str, Any]
SIZES = (0, 1, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**40)
STREAMS = (0, 7, -1, 0x55D0_1234_5678, -(2**63), 2**63 - 1)


@dataclass
class Trace:
    """Makes events as PyTorch does: a free has the very list of its allocation, all share their keys."""

    seed: int = 1
    events: list[Row] = field(default_factory=list)

    def grow(self, count: int, **more: Any) -> "Trace":
        chance = random.Random(self.seed)
        frames = [frame(f"f{number}", f"/job/file{number % 40}.py", number) for number in range(300)]
        stacks = [chance.sample(frames, chance.randint(1, 30)) for _ in range(50)]
        live: list[Row] = []
        for number in range(count):
            if live and chance.random() < 0.45:
                born = live.pop(chance.randrange(len(live)))
                made = {**born, "action": chance.choice(["free_requested", "free_completed"])}
                made["time_us"] = 10**15 + number
            else:
                address = chance.choices((BASE, 2**63 + 4096, 512), (18, 1, 1))[0] + number * 512
                size, stack = chance.choice(SIZES), list(chance.choice(stacks))
                made = event("alloc", address, size, 10**15 + number, **more, frames=stack)
                made["stream"] = chance.choice(STREAMS)
                live.append(made)
            self.events.append(made)
        return self


def dump(root: object, protocol: int = 4) -> bytes:
    return pickle.dumps(root, protocol=protocol)


def make(*traces: list[Row], **fields: Any) -> Row:
    blocks = [block(MIB, frames=LINEAR), block(MIB, "inactive"), block(MIB, frames=list(EMBED))]
    return snapshot([segment(blocks)], *traces, **fields)


def decode_both(data: bytes) -> tuple[MemorySnapshot, MemorySnapshot]:
    replies = [
        decode(io.BufferedReader(io.BytesIO(data)), are_events_many=are_many) for are_many in (True, False)
    ]
    assert replies[0].snapshot is not None
    assert replies[1].snapshot is not None
    return replies[0].snapshot, replies[1].snapshot


def spell_out(found: MemorySnapshot) -> object:
    """Return all that a snapshot says, without the numbers of its stacks, which are in no order."""
    name = found.stacks.frames_of
    traces = [
        (
            trace.device,
            trace.is_overflowed,
            *map(list, (trace.action, trace.address, trace.size_bytes, trace.stream, trace.time_us)),
            [name(stack) for stack in trace.stack],
        )
        for trace in found.traces
    ]
    blocks = (list(found.blocks.address), list(found.blocks.state), [name(it) for it in found.blocks.stack])
    return traces, blocks, list(found.segments.address), found.settings, found.annotations, found.notes


def count_read_at_once(data: bytes) -> int:
    """Return the events that were read at once."""
    left: list[bytes] = []

    def load(content: bytes) -> object:
        left.append(content)
        return pickle.loads(content)  # noqa: S301 - made here

    _, runs = read_at_once(*read_framed(io.BufferedReader(io.BytesIO(data))), load)
    assert len(left[0]) < len(data)
    return len(runs)


def _with_texts(root: Row) -> None:
    for number, each in enumerate(root["device_traces"][0]):
        frames = each.pop("frames")
        each["user_metadata"] = "".join(["N", "/A", str(number % 3)])
        each["compile_context"] = None
        each["frames"] = frames


def _without_frames(root: Row) -> None:
    for each in root["device_traces"][0]:
        del each["frames"]


def _with_other_events(root: Row) -> None:
    trace = root["device_traces"][0]
    trace.insert(700, event("oom", 5, 6, 7, frames=trace[3]["frames"]))
    trace.insert(900, event("segment_alloc", BASE, 20 * MIB, 7))
    trace.insert(901, {"action": "alloc", "addr": 2**64 - 1, "size": True, "stream": 0, "frames": []})


def _with_shared_lists(root: Row) -> None:
    root["segments"][0]["blocks"][0]["frames"] = root["device_traces"][0][100]["frames"]


def _with_annotations(root: Row) -> None:
    root["external_annotations"] = [{"device": 0, "time_us": 5, "name": "step", "stage": "START"}]


@pytest.mark.parametrize(
    "change",
    [
        lambda root: None,
        _with_texts,
        _without_frames,
        _with_other_events,
        _with_shared_lists,
        _with_annotations,
        lambda root: root["device_traces"].append(Trace(2).grow(1100).events),
    ],
    ids=["plain", "texts", "no-frames", "other-events", "shared-lists", "annotations", "two-devices"],
)
@pytest.mark.parametrize("protocol", [4, 5])
def test_all_comes_to_the_same(change: Callable[[Row], object], protocol: int) -> None:
    root = make(Trace().grow(1500).events)
    change(root)
    data = dump(root, protocol)
    at_once, one_by_one = decode_both(data)
    assert spell_out(at_once) == spell_out(one_by_one)
    assert count_read_at_once(data) > 1150


def test_it_is_the_way_of_large_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above would compare one way with itself."""
    monkeypatch.setattr(decoder_module, "_load", None)
    reply = decode(io.BufferedReader(io.BytesIO(dump(make(Trace().grow(1500).events)))), are_events_many=True)
    assert reply.snapshot is not None
    assert len(reply.snapshot.traces[0]) == 1500


@pytest.mark.parametrize(
    "spoil",
    [
        lambda root: root["device_traces"][0].insert(1500, ()),
        lambda root: root["device_traces"][0].append(root["device_traces"][0][100]),
        lambda root: root.update(device_traces=[], more=root["device_traces"]),
        lambda root: root["device_traces"][0][1500].update(size=-1),
        lambda root: root["device_traces"][0][1500].update(time_us=-2),
        lambda root: root["segments"][0].update(segment_pool_id=(0, 0, 0)),
        lambda root: root["segments"][0]["blocks"][0].update(state="gone"),
    ],
    ids=["tuple", "twice", "elsewhere", "negative-size", "negative-time", "pool", "state"],
)
def test_what_is_unusual_is_read_or_refused_as_ever(spoil: Callable[[Row], object]) -> None:
    root = make(Trace().grow(1600).events)
    spoil(root)
    data = dump(root)
    replies = [
        decode(io.BufferedReader(io.BytesIO(data)), are_events_many=are_many) for are_many in (True, False)
    ]
    assert replies[0].refusal == replies[1].refusal
    if replies[0].snapshot is not None and replies[1].snapshot is not None:
        assert spell_out(replies[0].snapshot) == spell_out(replies[1].snapshot)


@pytest.mark.parametrize("place", ["key", "frames", "number"])
def test_an_event_that_refers_to_another_is_refused_as_ever(place: str) -> None:
    """In the pickle that is left, something stands for the objects of the events that were read at once."""
    made = Trace().grow(1600).events
    spoilt = {**made[1500], "mark": made[1400], "a key": 0}
    if place != "key":
        spoilt["frames"] = made[1400] if place == "frames" else 5
    made[1500] = spoilt
    data = dump(make(made))
    if (
        place == "key"
    ):  # no writer makes such a key: the reference before the text, and nothing, take its place
        text = b"\x8c\x05a key\x94"
        reference = data[data.index(text) - 5 : data.index(text)]
        data = data.replace(text, reference + pickle.MEMOIZE + pickle.NONE + pickle.POP)
    replies = [
        decode(io.BufferedReader(io.BytesIO(data)), are_events_many=are_many) for are_many in (True, False)
    ]
    assert replies[0].refusal is not None
    assert replies[0].refusal == replies[1].refusal


def test_a_file_that_lost_a_part_within_is_refused() -> None:
    """What is left may still be a pickle, but it is not as long as it says."""
    data = dump(make(Trace().grow(1500).events))
    begin = data.rindex(b"u}\x94(") + 1
    end = data.index(b"u", begin) + 1
    reply = decode(io.BufferedReader(io.BytesIO(data[:begin] + data[end:])), are_events_many=True)
    assert "cut short" in (reply.refusal or "")


def test_a_compressed_file_is_read_at_once_too(tmp_path: Path) -> None:
    data = dump(make(Trace().grow(1500).events))
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(gzip.compress(data, 1))
    with path.open("rb") as file:
        assert read_framed(io.BufferedReader(GzipStream(file))) == read_framed(
            io.BufferedReader(io.BytesIO(data))
        )
    with path.open("rb") as file:
        packed = decode(file, are_events_many=True)
    assert packed.snapshot is not None
    assert spell_out(packed.snapshot) == spell_out(decode_both(data)[1])


CONFINED = """
from vramscope.engine.files.memory_snapshot import decoder
decoder._is_large = lambda stream: True
decoder._load = None
decoder.main()
"""


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "gzip"])
def test_the_confined_process_reads_events_at_once(is_packed: bool, tmp_path: Path) -> None:
    """It may open nothing more, and ask nothing about its file: what numpy loads late would fail there."""
    data = dump(make(Trace().grow(1500).events))
    path = tmp_path / "snapshot"
    path.write_bytes(gzip.compress(data, 1) if is_packed else data)
    with path.open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-c", CONFINED, str(1 << 30), "60"],
            stdin=file,
            capture_output=True,
            cwd=REPOSITORY,
            check=True,
        )
    snapshot = decode_reply(done.stdout).snapshot
    assert snapshot is not None
    assert len(snapshot.traces[0]) == 1500


@pytest.mark.parametrize("protocol", [2, 3])
def test_older_protocols_are_left_to_the_unpickler(protocol: int) -> None:
    data = dump(make(Trace().grow(1100).events), protocol)
    with pytest.raises(OtherFormError):
        read_framed(io.BufferedReader(io.BytesIO(data)))
    at_once, one_by_one = decode_both(data)
    assert spell_out(at_once) == spell_out(one_by_one)


def test_damage_comes_to_the_same() -> None:
    chance = random.Random(11)
    good = dump(make(Trace().grow(1400).events))
    assert count_read_at_once(good) > 1100
    read = 0
    for _ in range(30):
        data = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(2, len(data))] = chance.randrange(256)
        at = chance.randrange(len(data))
        if chance.random() < 0.4:
            del data[at : at + chance.choice([3, len(data)])]
        replies = [
            decode(io.BufferedReader(io.BytesIO(data)), are_events_many=are_many)
            for are_many in (True, False)
        ]
        assert replies[0].refusal == replies[1].refusal
        if replies[0].snapshot is not None and replies[1].snapshot is not None:
            assert spell_out(replies[0].snapshot) == spell_out(replies[1].snapshot)
            read += 1
    assert 0 < read < 30
