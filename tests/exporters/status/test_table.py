"""The table of `--once`: fits any width, cuts no figure, is honest about what is not known."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.sentence import count_cells
from vramscope.engine.model import Assessment, DeviceSample, MemoryReading, NodeStatus, ProcessReading
from vramscope.exporters.status.table import render_table
from vramscope.exporters.text import TableStyle

from .statuses import GIB, make_device, make_finding, make_status, statuses


def render(*devices: DeviceSample, width: int = 80, **style: bool) -> str:
    return render_table(make_status(*devices), TableStyle(width=width, **style))


def row_of(text: str, label: str) -> str:
    return next(line for line in text.splitlines() if line.split()[:1] == [label])


@given(statuses, st.integers(20, 240), st.booleans(), st.booleans())
def test_whatever_was_measured_it_fits_and_steers_no_terminal(
    status: NodeStatus, width: int, is_ascii: bool, has_color: bool
) -> None:
    style = TableStyle(width=width, is_ascii=is_ascii, has_color=has_color)
    text = render_table(status, style)
    if has_color:
        return
    assert all(count_cells(line) <= width for line in text.split("\n"))
    assert "\x1b" not in text
    assert text.isascii() or not is_ascii


@pytest.mark.parametrize("width", [26, 40, 60, 80, 120])
def test_figures_are_never_cut(width: int) -> None:
    text = render(make_device(used_gib=61.25), make_device(1, used_gib=7), width=width)
    assert "61.2/80.0" in text
    assert " 7.0/80.0" in text


def test_a_wide_terminal_shows_everything_of_a_device() -> None:
    row = row_of(render(make_device(used_gib=61.25), width=120), "0")
    for cell in ("NVIDIA H100 80GB HBM3", "61.2/80.0", "77 %", "98 %", "64 °C", "612 W"):
        assert cell in row
    assert row.endswith("—")
    assert "unknown" not in row, "the verdict says it, once"


def test_details_that_a_slow_driver_keeps_from_being_read_say_their_age() -> None:
    text = render(make_device(details_age_s=12.3), make_device(1), width=120)
    assert "98 %" in row_of(text, "0")
    assert (
        text.count("utilisation, temperature, power and processes were read 12 s ago: the driver answers")
        == 1
    )


def test_the_gauge_runs_from_zero_to_the_total_and_shows_the_peak_of_the_tick() -> None:
    half = MemoryReading(80 * GIB, 40 * GIB, 40 * GIB, 40 * GIB, 60 * GIB)
    row = row_of(render(make_device(memory=half), width=160), "0")
    gauge = "".join(cell for cell in row if cell in "█▒░")
    assert gauge == "█" * 10 + "▒" * 5 + "░" * 5


def test_a_row_says_how_long_a_device_has_left_and_a_calm_one_that_it_is() -> None:
    status = make_status(make_device(), make_device(1))
    grave = Assessment(
        "node03", "GPU-1", "1", status.time - 4, "critical", "floors rise", pid=7, oom_in_s=80.0
    )
    calm = Assessment("node03", "GPU-0", "0", status.time, "low", "floors do not rise", pid=6)
    text = render_table(msgspec.structs.replace(status, assessments=(calm, grave)), TableStyle(width=140))
    assert row_of(text, "0").endswith("· low")
    assert row_of(text, "1").endswith("✖ critical 1 m 16 s")
    assert "OOM risk critical on GPU 1: floors rise" in text


def test_what_is_not_known_is_a_dash_and_never_a_zero() -> None:
    unknown = make_device(
        memory=MemoryReading(), utilization_percent=None, temperature_c=None, power_w=None, name=None
    )
    row = row_of(render(unknown, width=120), "0")
    assert "0 %" not in row
    assert "0.0" not in row
    assert row.count("—") >= 7


def test_a_stale_device_says_for_how_long_and_a_lost_one_that_it_is() -> None:
    text = render(make_device(0, state="stale", age_s=7.4), make_device(1, state="lost"))
    assert "stale 7 s" in row_of(text, "0")
    assert "LOST" in row_of(text, "1")


def test_a_device_that_has_ended_says_so_and_does_not_count() -> None:
    text = render(make_device(0), make_device(1, kind="simulated", state="ended", age_s=130.0))
    assert "ended 2 m" in row_of(text, "sim1")
    assert "1 GPU" in text
    assert "1 ended" in text
    assert "simulated GPU" not in text


def test_unified_memory_is_labelled() -> None:
    memory = MemoryReading(128 * GIB, 20 * GIB, 108 * GIB, 20 * GIB, 20 * GIB, "host")
    text = render(make_device(name="NVIDIA GB10", kind="unified", memory=memory))
    assert "GPU 0 shares the host's memory (unified); memory is the host's" in text


def test_an_instance_stands_under_its_gpu() -> None:
    text = render(make_device(0), make_device(0, uuid="MIG-1", kind="mig", mig_index=1, parent_uuid="GPU-0"))
    assert row_of(text, "0:1").startswith(" 0:1")


def test_processes_are_sorted_by_memory_and_honest_about_where_they_are() -> None:
    processes = (
        ProcessReading(pid=1, user="train", command="small", used_bytes=GIB),
        ProcessReading(pid=2, user="train", command="large", used_bytes=9 * GIB),
        ProcessReading(pid=3, location="outside", used_bytes=None),
        ProcessReading(pid=6, command="rank", location="outside", started_s=5.0, used_bytes=GIB),
        ProcessReading(pid=4, command="dead", location="gone", used_bytes=2 * GIB),
        ProcessReading(pid=5, command="inner", location="container", container="ab12", used_bytes=3 * GIB),
    )
    text = render(make_device(processes=processes))
    assert text.index("large") < text.index("small")
    assert "host pid 3, outside this container" in text
    assert "rank (outside this container)" in text
    assert "dead (exited, memory still held)" in text
    assert "[container ab12] inner" in text


def test_a_command_line_cannot_steer_the_terminal() -> None:
    evil = ProcessReading(pid=1, user="a\x07b", command="x\x1b]0;owned\x07\x9b31m\r\ny", used_bytes=GIB)
    text = render(make_device(processes=(evil,), name="[red]card[/red]"))
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "\x07" not in text
    assert "[red]card[/red]" in text


def test_open_findings_are_shown_with_advice_and_closed_ones_are_not() -> None:
    findings = (make_finding(), make_finding(id="2", title="an old story", closed_s=3.0))
    text = render_table(make_status(make_device(), findings=findings), TableStyle())
    assert text.splitlines()[1].startswith("✖ GPU 0 out of memory in 1 m 16 s")
    assert "Lower the batch size." in text
    assert "an old story" not in text
    assert "✖ critical" in row_of(text, "0")


def test_a_forecast_is_told_as_of_now_wherever_it_stands() -> None:
    stated = make_finding(updated_s=1_699_999_990.5)
    text = render_table(make_status(make_device(), findings=(stated,)), TableStyle())
    assert text.count("GPU 0 out of memory in 1 m 06 s") == 2
    assert "1 m 16 s" not in text


def test_notes_are_shown_unless_they_are_told_elsewhere() -> None:
    status = make_status(make_device(), notes=("first note", "second note"))
    text = render_table(status, TableStyle(), hidden_notes=["first note"])
    assert "first note" not in text
    assert "second note" in text


def test_colour_is_used_only_where_it_is_asked_for() -> None:
    assert "\x1b[" in render(make_device(), has_color=True)
    assert "\x1b[" not in render(make_device(), has_color=False)


def test_a_device_that_cannot_be_read_says_why_on_a_line_of_its_own() -> None:
    reason = "The driver refused this user; ask for the group that owns /dev/nvidia1"
    refused = make_device(1, state="unsupported", reason=reason, memory=MemoryReading())
    text = render(make_device(0), refused, make_device(2, state="lost", reason="It fell off the bus"))
    for line in (f"GPU 1 {reason}", "GPU 2 It fell off the bus"):
        assert line in " ".join(text.split())


def test_instances_are_counted_beside_the_gpus() -> None:
    instances = [
        make_device(0, uuid=f"MIG-{number}", kind="mig", mig_index=number, parent_uuid="GPU-0")
        for number in range(2)
    ]
    assert " · 2 GPUs, 2 MIG instances · " in render(make_device(0), *instances, make_device(1))
    assert " · 1 GPU · " in render(make_device(0))
    assert " · no GPU · " in render()


def test_the_verdict_is_never_cut() -> None:
    reason = "a call to the NVIDIA driver has not returned, and nothing else of this device is known"
    text = render(make_device(0, state="stale", age_s=7.0, reason=reason), width=40)
    verdict = " ".join(text.partition("\n\n")[0].splitlines()[1:])
    assert reason in " ".join(verdict.split())


def test_what_is_missing_is_said_once() -> None:
    reason = "libnvidia-ml.so.1 was not found"
    text = render_table(
        make_status(notes=(f"No NVIDIA driver library: {reason}", "another note")), TableStyle(width=200)
    )
    assert text.count(reason) == 1
    assert "note another note" in text


def test_a_host_without_swap_says_so() -> None:
    assert "· no swap ·" in render(make_device())


def test_processes_that_the_driver_does_not_tell_are_a_dash_and_none_are_nothing() -> None:
    untold = row_of(
        render(make_device(processes=None), make_device(1, processes=())).partition("pid")[2], "0"
    )
    assert untold.split()[1:4] == ["—", "—", "—"]
    assert "pid" not in render(make_device(processes=()))
