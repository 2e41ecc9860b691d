"""`vramscope record`: from the driver or an agent into a file that every other verb reads."""

import json
import signal
from pathlib import Path

import pytest

from vramscope.cli import recorder
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.recording import Recording
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.client import connect
from vramscope.engine.wire.endpoints import is_hub_alive

from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until
from .running import GIB, no_library, run
from .test_stream import agent, running


def test_a_node_without_an_agent_is_recorded_until_the_time_is_up(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], tmp_path: Path
) -> None:
    pretend_driver.add_device(used_bytes=10 * GIB)
    path = tmp_path / "run.vscope"
    outcome = run("record", "-o", str(path), "--interval", "0.2", "--duration", "1.5s")
    assert (outcome.code, outcome.stdout) == (0, "")
    first, last = outcome.stderr.splitlines()
    assert first == f"vramscope record: recording into {path}; press Ctrl-C to end"
    assert "samples" in last
    assert f"in {path}" in last
    with Recording(path) as recording:
        samples = list(recording.samples())
        assert 1 <= len(samples) <= 9
        assert {sample.devices[0].memory.used_bytes for sample in samples} == {10 * GIB}
        assert recording.identity.interval_s == 0.2
        assert [it.text for it in recording.events()][-1] == "the time is up"
    assert not is_hub_alive(locate_runtime_folder()), "it starts nothing"
    refused = run("replay", str(path))
    assert refused.code == 2
    assert "standard output is not a terminal; use `vramscope export FILE" in refused.stderr
    report = run("leak", "--input", str(path))
    assert report.code == 0
    assert '"format": "recording"' in report.stdout


@pytest.mark.waits
def test_beside_an_agent_it_follows_that_one_and_ctrl_c_ends_it_cleanly(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], tmp_path: Path
) -> None:
    pretend_driver.add_device(used_bytes=79 * GIB)
    path = tmp_path / "run.vscope"
    with agent("--interval", "0.2"), running("record", "-o", str(path)) as process:
        wait_until(lambda: count(path) >= 5, what="five samples", timeout_s=60.0)
        wait_until(lambda: find_kinds(path), what="the finding of the agent's worker", timeout_s=60.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "samples" in err.splitlines()[-1]
    assert "pressure" in find_kinds(path)
    with Recording(path) as recording:
        assert recording.identity.interval_s is None
        assert {sample.interval_s for sample in recording.samples()} == {0.2}
        assert [it.text for it in recording.events()][-1] == "a signal ended it"
    assert list(tmp_path.glob("run*")) == [path]


def test_what_a_killed_recording_holds_is_read_and_continued(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], tmp_path: Path
) -> None:
    pretend_driver.add_device(used_bytes=10 * GIB)
    path = tmp_path / "run.vscope"
    with running("record", "-o", str(path), "--interval", "0.1") as process:
        wait_until(lambda: count(path) >= 10, what="ten samples", timeout_s=60.0)
        refused = run("record", "-o", str(path))
        process.kill()
        process.wait()
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"vramscope: {path}: process {process.pid} is recording into it; choose another file with -o\n"
    )
    left = count(path)
    assert left >= 10
    report = json.loads(run("profile", "--input", str(path)).stdout)
    assert report["evidence"]["samples"] == left
    with running("record", "-o", str(path), "--interval", "0.1") as process:
        wait_until(lambda: count(path) > left, what="a sample more", timeout_s=60.0)
        process.send_signal(signal.SIGHUP)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"in {path}" in said.splitlines()[-1], "a terminal that hangs up ends it in order"
    with Recording(path) as recording:
        assert not recording.is_unfinished


def test_a_recording_that_is_continued_has_no_hole_where_an_agent_remembers(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], tmp_path: Path
) -> None:
    pretend_driver.add_device(used_bytes=10 * GIB)
    path = tmp_path / "run.vscope"
    with agent("--interval", "0.1"):
        with running("record", "-o", str(path)) as process:
            wait_until(lambda: count(path) >= 3, what="three samples", timeout_s=60.0)
            process.kill()
            process.wait()
        last = read_seqs(path)[-1]
        with connect() as client:
            wait_until(lambda: (it := client.snapshot().sample) and it.seq > last + 5, what="more samples")
        with running("record", "-o", str(path)) as process:
            wait_until(lambda: len(set(read_seqs(path))) > last + 5, what="the samples between")
            process.terminate()
            _, said = process.communicate(timeout=60)
    seqs = read_seqs(path)
    assert seqs == list(range(seqs[0], seqs[-1] + 1))
    assert "samples from the memory of the agent: " in said.splitlines()[-1]


def test_without_a_device_the_code_says_why(tmp_path: Path) -> None:
    words = ("record", "-o", str(tmp_path / "run.vscope"), "--duration", "0.5")
    outcome = run(*words, **no_library(tmp_path))
    assert outcome.code == 4
    assert "libnvidia-ml" in outcome.stderr.splitlines()[-1]
    with Recording(tmp_path / "run.vscope") as recording:
        assert all(sample.host is not None for sample in recording.samples())


def test_without_a_device_the_reason_of_the_agent_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in no_library(tmp_path).items():
        monkeypatch.setenv(name, value)
    with agent():
        outcome = run("record", "-o", str(tmp_path / "run.vscope"), "--duration", "0.5")
    assert outcome.code == 4
    assert "libnvidia-ml" in outcome.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--keep", "7d"], "--keep deletes whole files and needs --rotate SIZE"),
        (["--rotate", "5kB"], "--rotate 5kB: expected 1MiB or more"),
        (["--rotate", "much"], "--rotate much: not a size"),
        (["--duration", "0s"], "--duration 0s: expected a time above zero"),
        ([], "/nowhere/run.vscope: cannot be written: no such file or directory"),
    ],
)
def test_a_mistake_is_told_in_one_line_before_anything_starts(flags: list[str], told: str) -> None:
    outcome = run("record", "-o", "/nowhere/run.vscope", *flags)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("vramscope: ")
    assert told in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


def count(path: Path) -> int:
    """Return how many samples a recording has; none where nobody has begun it."""
    if not path.exists() or not path.stat().st_size:
        return 0
    with Recording(path) as recording:
        return recording.sample_count


def find_kinds(path: Path) -> set[str]:
    with Recording(path) as recording:
        return {finding.kind for finding in recording.findings()}


def read_seqs(path: Path) -> list[int]:
    with Recording(path) as recording:
        return [sample.seq for sample in recording.samples()]


def test_whoever_reads_of_a_recording_can_end_it(
    pretend_nvml: PretendDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend_nvml.add_device()
    handlers = []

    def end_at_once(*_: object) -> None:
        handlers.append(signal.getsignal(signal.SIGTERM))
        if handlers[-1] is not signal.SIG_DFL:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(recorder, "announce", end_at_once)
    recording = recorder.Recorder(tmp_path / "a.vscope", Settings(), is_for_viewers=True)
    recording.run(30.0)
    assert handlers != [signal.SIG_DFL]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("a.")] == ["a.vscope"]
