"""`vramscope exporter`: one scrape into a file, and flags that contradict each other."""

import os
import stat
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.exporters.prometheus.scraped import Series
from tests.pretend_nvml.driver import PretendDriver
from tests.structure.tree import ROOT
from tests.waiting import wait_until
from vramscope.engine.units import GIB, MIB

from .running import call, run, start


def read_file(path: Path) -> Series:
    return Series(text_string_to_metric_families(path.read_text()))


@pytest.mark.waits
def test_one_scrape_of_an_agent_becomes_a_file_for_the_textfile_collector(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], tmp_path: Path
) -> None:
    pretend_driver.add_device(used_bytes=10 * GIB)
    path = tmp_path / "textfiles/vramscope.prom"
    path.parent.mkdir()
    with start("agent") as agent:
        try:
            assert agent.stderr is not None
            assert "serving" in agent.stderr.readline()
            words = ("exporter", "--dcgm-names", "--textfile", str(path))

            def is_measured() -> bool:
                done = run(*words)
                assert (done.code, done.stdout, done.stderr) == (0, "", "")
                return read_file(path).of("vramscope_device_used_bytes") == [10 * GIB]

            wait_until(is_measured, 30, "the memory of the device")
        finally:
            agent.kill()
    told = read_file(path)
    assert told.of("vramscope_agent_up") == [1]
    assert told.of("DCGM_FI_DEV_FB_USED") == [10 * GIB / MIB]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644, "the collector is another user"
    assert list(path.parent.iterdir()) == [path]


def test_the_textfile_is_for_everybody_until_another_mode_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "vramscope.prom"
    words = ("exporter", "--textfile", str(path))
    former = os.umask(0o022)
    try:
        call(*words, VRAMSCOPE_RUNTIME_DIR=str(tmp_path / "none"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.chmod(0o640)
        call(*words, VRAMSCOPE_RUNTIME_DIR=str(tmp_path / "none"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(former)


def test_without_an_agent_the_file_says_that_none_is_up(tmp_path: Path) -> None:
    path = tmp_path / "vramscope.prom"
    path.write_text("vramscope_device_used_bytes 7\n")
    done = call("exporter", "--textfile", str(path), VRAMSCOPE_RUNTIME_DIR=str(tmp_path / "none"))
    assert done.code == 7
    assert "no agent serves" in done.stderr
    told = read_file(path)
    assert told.of("vramscope_agent_up") == [0]
    assert told.names == {"vramscope_agent_up"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("exporter", "--textfile", "x.prom", "--prometheus"), "--textfile serves and pushes nothing"),
        (("exporter", "--otlp", "--dcgm-names"), "--dcgm-names needs --prometheus"),
        (("agent", "--dcgm-names"), "--dcgm-names needs --prometheus"),
        (("agent", "--insecure"), "--insecure needs --prometheus, --otlp or --listen"),
        (("agent", "--otlp", "http://collector.example.org:4318"), "--insecure"),
    ],
)
def test_flags_that_have_nothing_to_act_on_are_refused(words: tuple[str, ...], reason: str) -> None:
    done = call(*words)
    assert done.code == 2
    assert reason in done.stderr


def test_the_documents_name_every_metric_of_dcgm_that_is_served() -> None:
    from vramscope.exporters.metrics.dcgm import FIELDS

    page = (ROOT / "docs/prometheus.md").read_text(encoding="utf-8")
    assert [it.name for it in FIELDS if f"DCGM_FI_{it.name}" not in page] == []
