"""Training processes on the devices of the live view: who they are, what they tell, what ails them."""

import msgspec
import pytest

from tests.tui.canned import NOON_S
from tests.tui.canned_ranks import (
    history_of,
    make_allocator,
    make_crowd,
    make_job,
    make_on_processors,
    make_rank,
    make_simulated,
    make_trained,
    with_ranks,
)
from vramscope.engine.history import History
from vramscope.engine.model import DeviceSample, RankCoordinates, RankSample, StepReading
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.draw.glyphs import ASCII, UNICODE, Glyphs
from vramscope.tui.draw.spans import line_text, line_width
from vramscope.tui.live.device_picture import DevicePicture
from vramscope.tui.widgets.device_view import collect_ranks, name_degrees, name_rank, name_ranks


def _draw(snapshot: Snapshot, width: int, height: int, glyphs: Glyphs = UNICODE) -> list[str]:
    history = history_of(snapshot)
    return [line_text(line) for line in DevicePicture(glyphs).draw(snapshot, history, width, height)]


def _one(rank: RankSample, width: int = 120, height: int = 12) -> str:
    return "\n".join(_draw(with_ranks([make_trained(0, [rank])], [rank]), width, height))


def test_a_large_device_names_its_rank_its_place_and_its_step() -> None:
    lines = _draw(with_ranks(*make_job(1)), 120, 12)
    assert lines[0].startswith(" 0 H100 80GB HBM3  rank 0 tp0 pp0   ? no forecast from allocator data")
    assert "step 1,842  1.04 s" in lines[2]
    assert "▓" in lines[1]


def test_several_ranks_on_a_device_are_named_together() -> None:
    lines = _draw(with_ranks(*make_crowd()), 120, 12)
    assert lines[0].startswith(" 0 H100 80GB HBM3  ranks 0,1   ? no forecast from allocator data")


def test_a_sliver_keeps_the_number_of_the_rank() -> None:
    lines = _draw(with_ranks(*make_job(8)), 40, 8)
    assert lines[5] == " 5 ▆▆▆▆▆▆▆▆▆▄▃▁▁◕ 81 %  ?  98 %u  rank 5"
    assert {len(line) for line in lines} == {40}


@pytest.mark.parametrize(
    ("rank", "short", "sentence"),
    [
        (
            make_rank(0, state="stale", age_s=12.4, reason="no word for a while"),
            "rank 0 stale",
            "rank 0 stale 12 s: no word for a while",
        ),
        (make_rank(0, state="ended", reason="detached"), "rank 0 ended", "rank 0 ended: detached"),
    ],
)
def test_a_rank_that_is_silent_or_over_says_so(rank: RankSample, short: str, sentence: str) -> None:
    large = _one(rank)
    assert sentence in large
    assert "▓" not in large, "its figures are not of now, so nothing is split by them"
    assert "alloc " not in large
    assert short in _one(rank, 40, 1)


def test_refusals_of_the_device_are_told_only_where_there_were_any() -> None:
    assert "retr" not in _one(make_rank(0))
    text = _one(make_rank(0, allocator=make_allocator(50.0, retries=3, ooms=1)))
    assert "1 OOM " in text
    assert "3 retries" in text


def test_steps_of_several_ranks_are_told_as_a_span_with_the_slowest() -> None:
    devices, ranks = make_crowd()
    ranks[1] = msgspec.structs.replace(ranks[1], step=StepReading(1840, NOON_S, 2.5))
    assert "step 1,840–1,842  2.50 s" in _draw(with_ranks(devices, ranks), 120, 12)[2]


def test_simulated_devices_and_processors_say_what_they_are_at_every_size() -> None:
    simulated = with_ranks(*make_simulated())
    assert "simulated" in _draw(simulated, 120, 20)[0]
    assert all(line.startswith(" sim") for line in _draw(simulated, 40, 2))
    assert "—" not in _draw(simulated, 120, 20)[0], "no metric is missing where there can be none"
    assert _draw(with_ranks(*make_on_processors()), 120, 12)[0].startswith(" CPU ")
    assert _draw(with_ranks(*make_on_processors()), 40, 1)[0].startswith(" CPU ")


def test_a_device_whose_ranks_have_ended_says_so_at_every_size() -> None:
    devices, ranks = make_simulated()
    ended = [msgspec.structs.replace(rank, state="ended") for rank in ranks]
    over = [msgspec.structs.replace(device, state="ended", age_s=130.0, allocator=None) for device in devices]
    for width, rows in ((120, 20), (80, 8), (60, 4)):
        assert "ended 2 m" in " ".join(_draw(with_ranks(over, ended), width, rows))


def test_an_ended_device_says_so_once() -> None:
    devices, ranks = make_simulated()
    ended = [msgspec.structs.replace(rank, state="ended") for rank in ranks]
    for reason, told in (
        ("process 4000: the process has ended", "process 4000"),
        ("process 4000: the process ended without notice", "process 4000 without notice"),
        ("process 4000: its probe was detached", "process 4000: its probe was detached"),
    ):
        over = [
            msgspec.structs.replace(it, state="ended", age_s=130.0, allocator=None, reason=reason)
            for it in devices
        ]
        line = _draw(with_ranks(over, ended), 120, 20)[0]
        assert f"ended 2 m 10 s ago: {told}" in line
        assert line.count("ended") == 1


def test_a_process_without_coordinates_goes_by_its_pid() -> None:
    assert name_rank(make_rank(0, coordinates=None)) == "pid 4000"


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        ([], ""),
        ([make_rank(3)], "rank 3 tp1 pp1"),
        ([make_rank(0), make_rank(1, state="stale")], "ranks 0,1 1 stale"),
        ([make_rank(index) for index in range(8)], "8 ranks"),
        ([make_rank(0), make_rank(1, coordinates=None)], "2 processes"),
        ([make_rank(0, coordinates=RankCoordinates(0, 4, dp=0, cp=1, ep=2))], "rank 0 dp0 cp1 ep2"),
    ],
)
def test_names_of_what_trains_on_a_device(ranks: list[RankSample], name: str) -> None:
    assert name_ranks(ranks) == name


def test_degrees_are_told_only_where_every_rank_of_the_job_is_here() -> None:
    ranks = [make_rank(index) for index in range(8)]
    assert name_degrees(ranks) == "tp2 pp4"
    assert name_degrees(ranks[:4]) == ""
    assert name_degrees([make_rank(0, coordinates=None)]) == ""


def test_the_ended_make_room_for_those_who_run() -> None:
    old, new = make_rank(0, pid=1, state="ended"), make_rank(0, pid=2)
    lost = make_rank(1, device_uuid=None)
    assert [rank.pid for rank in collect_ranks([old, new, lost])["GPU-0000"]] == [2]
    assert [rank.pid for rank in collect_ranks([old])["GPU-0000"]] == [1]


def test_an_age_that_counts_up_does_not_draw_a_fresh_device_again() -> None:
    picture, history = DevicePicture(UNICODE), History()
    drawn = []
    for age_s in (0.1, 0.4):
        devices, ranks = make_job(1)
        snapshot = with_ranks(devices, [msgspec.structs.replace(ranks[0], age_s=age_s)])
        picture.draw(snapshot, history, 120, 12)
        drawn.append(next(iter(picture._drawn.values()))[1])
    assert drawn[0] is drawn[1]


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
@pytest.mark.parametrize("count", [1, 8, 24])
def test_every_size_has_exact_rows(count: int, glyphs: Glyphs) -> None:
    devices, ranks = make_job(count)
    extra: list[DeviceSample] = [*make_simulated()[0], *make_on_processors()[0]]
    ranks += [*make_simulated()[1], *make_on_processors()[1], make_rank(0, pid=9, state="ended")]
    snapshot, picture = with_ranks([*devices, *extra], ranks), DevicePicture(glyphs)
    for width in (0, 1, 3, 20, 26, 40, 63, 80, 100, 120, 200, 333):
        for height in (0, 1, 2, 8, 12, 24, 50, 90):
            lines = picture.draw(snapshot, History(), width, height)
            assert {line_width(line) for line in lines} <= {width}
            if glyphs is ASCII:
                assert all(line_text(line).isascii() for line in lines)


def test_what_fills_a_device_is_told_part_by_part() -> None:
    lines = _draw(with_ranks(*make_job(1)), 120, 12)
    assert "alloc 50.0  cache 6.8  context 1.6  unnamed 0.7   step 1,842  1.04 s" in lines[2]
    assert "stranded 0.4 of 6.8 cached" in lines[2]


def test_parts_that_cannot_be_told_apart_share_a_name() -> None:
    rank = make_rank(0)
    device = msgspec.structs.replace(make_trained(0, [rank]), processes=None)
    lines = _draw(with_ranks([device], [rank]), 120, 12)
    assert "alloc 50.0  cache 6.8  context+other 2.3" in lines[2]


def test_what_fills_a_small_device_is_told_in_mebibytes() -> None:
    rank = make_rank(0, allocator=make_allocator(0.125, 0.75))
    assert "alloc  128  cache 768  context 1,638  unnamed 717 MiB" in _one(rank)


def test_a_simulated_card_is_called_simulated_once() -> None:
    devices, ranks = make_simulated(1)
    plain = msgspec.structs.replace(devices[0], name="simulated")
    assert _draw(with_ranks([plain], ranks), 120, 12)[0].startswith(" sim0   simulated  rank 0 ")
