"""What `R` in the live view begins: a recording that all viewers see and any ends, and that tells its end."""

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vramscope.engine.jobs.background import RecordingNews, ViewerRecording
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.recording import Recording
from vramscope.engine.recording.follower import read_announced

from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until

Begin = Callable[..., ViewerRecording]


@pytest.fixture
def begin(
    pretend_driver: PretendDriver,
    pretend_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Begin]:
    """Return what makes the recording of a viewer; what still goes on at the end is ended."""
    pretend_driver.add_device()
    for name, value in pretend_environment.items():
        monkeypatch.setenv(name, value)
    yield lambda output=tmp_path / "runs", **how: ViewerRecording(locate_runtime_folder(), output, **how)
    ViewerRecording(locate_runtime_folder(), tmp_path, is_private=True).leave()


def await_news(viewer: ViewerRecording) -> RecordingNews:
    found: list[RecordingNews] = []

    def has_come() -> bool:
        viewer.look()
        found.extend(viewer.take_news())
        return bool(found)

    wait_until(has_come, 60.0, "news")
    return found[0]


def test_a_recording_is_seen_and_ended_by_every_viewer_and_goes_on_without_them(
    begin: Begin, tmp_path: Path
) -> None:
    first, second = begin(), begin()
    first.switch("node 03/a")
    (news, path) = await_news(first), next((tmp_path / "runs").glob("*.vscope"))
    assert path.name.startswith("node-03-a-")
    assert news.text == f"Recording into {path}: it continues after you quit; R ends it."
    state = second.look()
    assert state is not None
    assert (state.path, state.size_bytes > 0, second.take_news()) == (path, True, [])
    note = read_announced(locate_runtime_folder())
    assert note is not None
    assert os.getsid(note.pid) == note.pid, "no signal of this terminal reaches it"
    assert first.leave() == f"still recording into {path}: end it with R in vramscope, or kill {note.pid}"
    wait_until(lambda: Recording(path).sample_count > 0, 60.0, "a sample")
    second.switch("node")
    news = await_news(second)
    assert news.text.startswith("Recorded ")
    assert news.text.endswith(f": vramscope replay {path}")
    # How long it was, each viewer counts by itself.
    assert await_news(first).text.partition(", ")[2] == news.text.partition(", ")[2]
    assert (second.look(), second.leave()) == (None, None)
    with Recording(path) as recording:
        assert not recording.is_unfinished


def test_what_ends_a_recording_is_told_in_one_line(begin: Begin, tmp_path: Path) -> None:
    viewer = begin()
    viewer.switch("node")
    await_news(viewer)
    note = read_announced(locate_runtime_folder())
    assert note is not None
    resource.prlimit(note.pid, resource.RLIMIT_FSIZE, (50_000, 50_000))  # as a disk that has become full
    news = await_news(viewer)
    assert news.is_failure
    assert "recording stopped: the disk is full or cannot be written" in news.text
    assert "\n" not in news.text
    (tmp_path / "file").write_text("")
    viewer = begin(tmp_path / "file" / "runs")
    viewer.switch("node")
    news = await_news(viewer)
    assert news == RecordingNews(f"{tmp_path}/file/runs: Not a directory.", is_failure=True)
    assert not viewer.is_changing


def test_a_recording_whose_file_is_taken_away_goes_on_and_every_viewer_is_told(
    begin: Begin, tmp_path: Path
) -> None:
    first, second = begin(), begin()
    first.switch("node")
    await_news(first)
    second.look()
    path = next((tmp_path / "runs").glob("*.vscope"))
    path.unlink()
    for viewer in (first, second):
        told = await_news(viewer)
        assert told.is_failure
        assert told.text == f"{path} was removed; the recording continues in a new file."
    state = second.look()
    assert state is not None
    assert (state.path, state.size_bytes > 0) == (path, True)
    first.switch("node")
    assert await_news(first).text.startswith("Recorded ")


def test_the_recording_of_a_private_agent_ends_with_its_viewer(begin: Begin, tmp_path: Path) -> None:
    viewer = begin(is_private=True)
    viewer.switch("node")
    assert "it ends with this view" in await_news(viewer).text
    (path,) = (tmp_path / "runs").glob("*.vscope")
    assert viewer.leave() == f"recorded into {path}: vramscope replay {path}"
    wait_until(lambda: list((tmp_path / "runs").iterdir()) == [path], 60.0, "the recorder to close its file")
