"""Inquirers beside the analyzers: their questions are asked once, their answers told; one may fail."""

from collections.abc import Sequence

import msgspec

from vramscope.engine.agent.analyzer_host import CloserLook
from vramscope.engine.model import Finding, Sample, SegmentMap
from vramscope.engine.model.finding import Inquiry

SAMPLE = Sample("node", 1, 10.0, 1.0)
FOUND = Finding("x", "leak", "node", "GPU-0", "0", "high", "it leaks", 10.0, 10.0)
MAP = SegmentMap("node", 7, "GPU-0", 11.0, ())


class Curious:
    """Asks for a map of process 7 about every finding, and then knows its time."""

    name = "curious"

    def __init__(self) -> None:
        self.known: float | None = None

    def restore(self, findings: Sequence[Finding]) -> None:
        self.known = findings[0].opened_s

    def follow(self, sample: Sample, findings: Sequence[Finding]) -> Sequence[Inquiry]:
        return [Inquiry("segments", 7) for _ in findings]

    def awaits_map(self, node: str, pid: int) -> bool:
        return (node, pid) == ("node", 7)

    def take_map(self, segment_map: SegmentMap) -> None:
        self.known = segment_map.time_s

    def enrich(self, finding: Finding) -> Finding:
        if self.known is None:
            return finding
        return msgspec.structs.replace(finding, title=f"{finding.title}, known since {self.known}")


class Broken(Curious):
    name = "broken"

    def follow(self, sample: Sample, findings: Sequence[Finding]) -> Sequence[Inquiry]:
        raise ValueError("no idea")


def test_what_is_asked_is_handed_on_once() -> None:
    look = CloserLook([Curious()])
    assert look.follow(SAMPLE, [FOUND]) == [FOUND]
    assert look.take_inquiries() == [Inquiry("segments", 7)]
    assert look.take_inquiries() == []
    assert look.awaits_map("node", 7)
    assert not look.awaits_map("node", 8)


def test_an_answer_tells_the_open_findings_anew_and_later_ones_come_with_it() -> None:
    look = CloserLook([Curious()])
    look.follow(SAMPLE, [FOUND])
    (told,) = look.take_map(MAP)
    assert told.title == "it leaks, known since 11.0"
    assert look.take_map(MAP) == [], "nothing more is known than before"
    (closed,) = look.follow(SAMPLE, [msgspec.structs.replace(FOUND, closed_s=12.0)])
    assert closed.title == "it leaks, known since 11.0"
    assert look.take_map(msgspec.structs.replace(MAP, time_s=13.0)) == [], (
        "a finding that closed is left as it was"
    )


def test_one_that_fails_is_set_aside_and_the_others_go_on() -> None:
    look = CloserLook([Broken(), Curious()])
    assert look.follow(SAMPLE, [FOUND]) == [FOUND]
    assert look.reason == "inquirer broken failed and was stopped: ValueError('no idea')"
    assert look.take_inquiries() == [Inquiry("segments", 7)]


def test_a_successor_learns_what_its_predecessor_knew() -> None:
    look = CloserLook([Curious()])
    look.restore([FOUND])
    (found,) = look.follow(SAMPLE, [FOUND])
    assert found.title == "it leaks, known since 10.0"


def test_questions_are_bounded() -> None:
    look = CloserLook([Curious()])
    for _ in range(200):
        look.follow(SAMPLE, [FOUND])
    assert len(look.take_inquiries()) == 64
