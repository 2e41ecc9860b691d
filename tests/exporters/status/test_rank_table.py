"""Training processes in the table of `--once`: there only when there are any, honest about what is known."""

import pytest

from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    ProcessReading,
    RankCoordinates,
    RankSample,
    RankState,
    StepReading,
)
from vramscope.exporters.status.table import render_table
from vramscope.exporters.text import TableStyle

from .statuses import GIB, make_device, make_status


def make_rank(
    number: int | None = 3, *, pid: int = 4711, state: RankState = "ok", **more: object
) -> RankSample:
    """Return a rank on GPU 0 that holds 30 GiB in 50 GiB of segments."""
    known: dict[str, object] = {
        "device_uuid": "GPU-0",
        "coordinates": None if number is None else RankCoordinates(number),
        "age_s": 0.2 if state == "ok" else 7.0,
        "allocator": AllocatorReading(allocated_bytes=30 * GIB, reserved_bytes=50 * GIB),
        "step": StepReading(1234, 1.0),
    }
    return RankSample(pid=pid, state=state, **{**known, **more})  # type: ignore[arg-type] # named by the caller


def render(*ranks: RankSample, device: DeviceSample | None = None, width: int = 100) -> str:
    """Return the table of a node with one device."""
    return render_table(make_status(device or make_device(), ranks=ranks), TableStyle(width=width))


def row_of(text: str, pid: int) -> list[str]:
    """Return the words of the row of a process."""
    return next(line.split() for line in text.splitlines() if line.split()[1:2] == [str(pid)])


def test_a_rank_has_a_row_with_what_its_process_holds_beyond_tensors() -> None:
    device = make_device(processes=(ProcessReading(pid=4711, used_bytes=52 * GIB),))
    row = row_of(render(make_rank(), device=device).partition("allocated")[2], 4711)
    assert " ".join(row) == "3 4711 0 30.0 GiB 50.0 GiB 22.0 GiB 1,234 ok"


def test_without_the_drivers_figure_the_gap_is_more_than_the_cache() -> None:
    assert ">20.0" in row_of(render(make_rank()), 4711)


def test_what_is_not_known_is_a_dash() -> None:
    bare = make_rank(None, device_uuid=None, allocator=None, step=None)
    assert " ".join(row_of(render(bare), 4711)) == "— 4711 — — — — — ok"


def test_a_rank_that_is_silent_says_why() -> None:
    text = render(make_rank(state="stale", reason="it has not reported for 7 s"))
    assert row_of(text, 4711)[-3:] == ["stale", "7", "s"]
    assert "rank 3 it has not reported for 7 s" in text
    assert "process 5 the process has ended" in render(
        make_rank(None, pid=5, state="ended", reason="the process has ended")
    )


def test_without_ranks_there_is_no_table() -> None:
    assert "reserved" not in render()


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_figures_are_never_cut(width: int) -> None:
    text = render(make_rank(), width=width)
    assert "30.0 GiB" in text
    assert ("4711" in text) == (width >= 60)


def test_the_host_and_simulated_cards_are_named_as_what_they_are() -> None:
    cpu = make_device(uuid="cpu-n", kind="cpu", name="host memory")
    text = render_table(
        make_status(make_device(uuid="sim-j-0", kind="simulated"), cpu), TableStyle(width=100)
    )
    assert "1 simulated GPU, 1 host" in text
    assert any(line.startswith("sim0") for line in text.splitlines())
    assert any(line.startswith("cpu") for line in text.splitlines())
