"""Findings in full: an error in a sentence, told for as long as it is the last word on its device."""

import msgspec

from vramscope.engine.model import Evidence, Finding
from vramscope.engine.model.finding import CLOSED_BECAUSE, FOLLOWED_BY, PROCESS_ENDED
from vramscope.engine.units import MIB
from vramscope.tui.device.page import draw_findings
from vramscope.tui.draw.glyphs import UNICODE

MET = Finding(
    id="1",
    kind="oom_met",
    node="n",
    device_uuid="sim-q-0",
    device="sim0",
    severity="critical",
    title="rank 0 ran out of memory asking for 28 MiB",
    opened_s=10.0,
    updated_s=10.0,
    evidence=(
        Evidence("process", 31370),
        Evidence("job", "q"),
        Evidence("last", 10.0, "s"),
        Evidence("step", 86),
        Evidence("request that failed", 28 * MIB, "bytes"),
    ),
)


def _text(finding: Finding) -> str:
    return "\n".join(
        "".join(span.text for span in line) for line in draw_findings([finding], "trace", 90, UNICODE)
    )


def test_an_error_is_told_in_a_sentence() -> None:
    assert "Process 31370 of job q failed to allocate 28 MiB at t 10.0 s, after step 86." in _text(MET)


def test_an_error_that_ended_its_process_is_told_until_another_follows() -> None:
    ended = (*MET.evidence, Evidence(CLOSED_BECAUSE, PROCESS_ENDED))
    over = msgspec.structs.replace(MET, closed_s=70.0, evidence=ended)
    assert "ran out of memory" in _text(over)
    followed = (*ended, Evidence(FOLLOWED_BY, 9))
    assert _text(msgspec.structs.replace(over, evidence=followed)) == ""
