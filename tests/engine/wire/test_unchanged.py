"""What stays the same is not sent again, and no viewer sees old values: not a late one, nor after a loss."""

import random

import msgspec
import pytest

from tests.clocks import HandClock
from vramscope.engine.history import History
from vramscope.engine.model import (
    DeviceActivity,
    DeviceHardware,
    DeviceSample,
    HubStatus,
    ProcessReading,
    Sample,
)
from vramscope.engine.viewer.conversation import Event, HubConversation, Joined
from vramscope.engine.wire.cells import encode_told
from vramscope.engine.wire.messages import (
    TOPIC_SAMPLE,
    WHOLE_EVERY,
    Request,
    Welcome,
    body_of,
    decode,
    encode,
    fill_in_unchanged,
    leave_out_unchanged,
)

ACTIVITIES = (None, DeviceActivity(sm_clock_mhz=1755), DeviceActivity(sm_clock_mhz=1410))
PROCESSES = (None, (), (ProcessReading(7, command="train.py"),), (ProcessReading(7), ProcessReading(8)))
HARDWARE = (None, DeviceHardware(power_limit_w=700.0), DeviceHardware(power_limit_w=500.0))


def make_sample(seq: int, *devices: DeviceSample) -> Sample:
    return Sample("node", seq, 1000.0 + seq, 1.0, devices)


def make_device(
    uuid: str,
    activity: DeviceActivity | None,
    hardware: DeviceHardware | None,
    processes: tuple[ProcessReading, ...] | None = PROCESSES[2],
) -> DeviceSample:
    return DeviceSample(uuid, 0, activity=activity, hardware=hardware, processes=processes)


def send(sample: Sample, before: Sample | None) -> bytes:
    return encode_told(TOPIC_SAMPLE, "hub", leave_out_unchanged(sample, before))


def receive(data: bytes, before: Sample | None) -> Sample:
    return fill_in_unchanged(body_of(decode(data), Sample), before)


def test_what_stays_is_not_sent_and_comes_back_as_it_was() -> None:
    first = make_sample(1, make_device("GPU-a", ACTIVITIES[1], HARDWARE[1]))
    second = msgspec.structs.replace(first, seq=2)
    data = send(second, first)
    assert b"power_limit_w" not in data
    assert b"sm_clock_mhz" not in data
    assert b"train.py" not in data
    assert len(data) < 0.6 * len(send(second, None))
    assert receive(data, first) == second


@pytest.mark.parametrize(("activity", "hardware"), [(None, HARDWARE[1]), (ACTIVITIES[1], None), (None, None)])
def test_what_is_no_longer_measured_is_not_filled_in(
    activity: DeviceActivity | None, hardware: DeviceHardware | None
) -> None:
    first = make_sample(1, make_device("GPU-a", ACTIVITIES[1], HARDWARE[1]))
    second = make_sample(2, make_device("GPU-a", activity, hardware))
    assert receive(send(second, first), first) == second


def test_a_viewer_without_the_sample_before_shows_it_as_unmeasured_until_all_is_sent_again() -> None:
    device = make_device("GPU-a", ACTIVITIES[1], HARDWARE[1])
    first, second, whole = (make_sample(seq, device) for seq in (1, 2, WHOLE_EVERY))
    found = receive(send(second, first), None).devices[0]
    assert (found.activity, found.hardware, found.processes) == (None, None, None)
    assert receive(send(whole, second), None) == whole


def test_an_older_viewer_reads_the_rest() -> None:
    first = make_sample(1, make_device("GPU-a", ACTIVITIES[1], HARDWARE[1]))
    body = msgspec.msgpack.decode(decode(send(msgspec.structs.replace(first, seq=2), first)).body)
    assert (body["devices"][0]["uuid"], body["devices"][0]["hardware"]) == ("GPU-a", {})


class LossyHub:
    """Publishes samples of devices that come, go and change, and answers who asks."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.newest = make_sample(0)
        self.published = [self.newest]

    def publish(self) -> bytes:
        uuids = [f"GPU-{letter}" for letter in "abc" if self.chance.random() < 0.9]
        before = {device.uuid: device for device in self.newest.devices}
        devices = [
            before[uuid]
            if uuid in before and self.chance.random() < 0.7
            else make_device(
                uuid,
                self.chance.choice(ACTIVITIES),
                self.chance.choice(HARDWARE),
                self.chance.choice(PROCESSES),
            )
            for uuid in uuids
        ]
        sample = make_sample(self.newest.seq + 1, *devices)
        data = send(sample, self.newest)
        self.newest = sample
        self.published.append(sample)
        return data

    def answer(self, data: bytes) -> bytes | None:
        request = body_of(decode(data), Request)
        status = HubStatus("hub", 1, "test", 0.0, 1.0, last_seq=self.newest.seq)
        welcome = Welcome(request.request_id, self.newest, (), status, History().block())
        return encode("welcome", "hub", welcome)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_lost_and_however_late_an_answer_is_nothing_old_is_shown(seed: int) -> None:
    chance = random.Random(seed)
    hub = LossyHub(chance)
    asked: list[bytes] = []
    events: list[Event] = []
    viewer = HubConversation(asked.append, HandClock(1000.0))
    viewer.ask()
    late: list[bytes] = []
    for _ in range(300):
        data = hub.publish()
        if chance.random() < 0.9:
            viewer.take(data, events)
        late += [answer for question in asked if (answer := hub.answer(question)) is not None]
        asked.clear()
        if late and chance.random() < 0.5:
            viewer.take(late.pop(0), events)
    found = [event for event in events if isinstance(event, Sample)]
    found += [it.welcome.sample for it in events if isinstance(it, Joined) and it.welcome.sample is not None]
    assert len(found) > 100
    wholes = 0
    for sample in found:
        published = hub.published[sample.seq]
        wholes += sample == published
        for shown, true in zip(sample.devices, published.devices, strict=True):
            assert shown.activity in (true.activity, None), f"sample {sample.seq}"
            assert shown.hardware in (true.hardware, None), f"sample {sample.seq}"
            assert shown.processes in (true.processes, None), f"sample {sample.seq}"
    assert wholes > 0.7 * len(found)
