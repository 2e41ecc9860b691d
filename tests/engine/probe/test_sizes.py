"""Sizes of steps: whole numbers alone are taken, and the steps that are larger than all before are read."""

import pytest

from vramscope.engine.probe.backends import NOTHING, Reading
from vramscope.engine.probe.base import current
from vramscope.engine.probe.sampler import Digest
from vramscope.engine.probe.steps import MOST, StepEnd, StepSizes, StepWatch
from vramscope.engine.probe.transport import Outbox
from vramscope.engine.ranks import messages

from .test_wire import decode


class OnDevice:
    """Stands for a tensor: to ask it for its value waits for the device."""

    def __index__(self) -> int:
        raise AssertionError("it was asked for its value")

    __int__ = __index__


@pytest.fixture(autouse=True)
def _no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current, "failures", [])


def test_whole_numbers_are_taken_and_those_of_numpy_too() -> None:
    numpy = pytest.importorskip("numpy")
    sizes = StepSizes()
    assert sizes.read(4096, 8) == (4096, 8)
    assert sizes.read(numpy.int64(7), None) == (7, None)
    assert type((sizes.read(numpy.int64(7), None) or (None,))[0]) is int
    assert sizes.read(None, 3) == (None, 3)
    assert sizes.read(0, -1) is None
    assert sizes.read(MOST + 1, None) is None
    assert current.failures == []


@pytest.mark.parametrize("other", [OnDevice(), 8.0, "8", True, float("nan")])
def test_anything_else_is_left_out_without_asking_it_and_told_once(other: object) -> None:
    sizes = StepSizes()
    assert sizes.read(other, 8) == (None, 8)
    assert sizes.read(other, other) is None
    (told,) = current.failures
    assert told.startswith("vramscope.step(tokens=…) failed: TypeError: expected a whole number, not ")


def test_the_largest_so_far_is_known_by_tokens_or_else_by_samples() -> None:
    sizes = StepSizes()
    told = [(10, 4), (10, 8), (12, 2), (None, 12), (None, 13)]
    assert [sizes.is_new_largest(each) for each in told] == [True, False, True, False, True]


def at(allocated: int, peak: int) -> Reading:
    return Reading(allocated_bytes=allocated, peak_bytes=peak)


def test_the_peak_of_the_largest_step_is_exact_though_its_beginning_was_not_read() -> None:
    for is_largest in (True, False):
        watch = StepWatch()
        watch.end(StepEnd(1.0, 1.0, at(100, 500)))
        watch.end(StepEnd(2.0, 2.0, NOTHING))
        row = watch.end(StepEnd(3.0, 3.0, at(120, 900), (64, None), is_largest))
        assert row[3:] == (120, 900, is_largest)


def test_sizes_travel_beside_the_steps_that_told_them() -> None:
    outbox = Outbox()
    packets: list[bytes] = []

    def send(packet: bytes) -> bool:
        packets.append(packet)
        return True

    digest = Digest(outbox)
    digest.note_end((1.0, 101.0, at(100, 500), None, False))
    digest.note_end((2.0, 102.0, at(100, 900), (4096, 8), True))
    digest.note_end((3.0, 103.0, at(100, 900), (None, 4), False))
    digest.work((None, None), None)
    assert outbox.flush(send)
    (message,) = (decode(packet) for packet in packets)
    assert isinstance(message, messages.Steps)
    assert [row[0] for row in message.rows] == [1, 2, 3]
    assert message.rows[1][3:] == (100, 900, True)
    assert message.sizes == ((2, 4096, 8), (3, None, 4))
