"""Reports on disk: whole or not at all, and refused before a long watch where they could not be written."""

import json
import os
import stat
from functools import partial
from pathlib import Path

import pytest

from vramscope.engine.errors import OutputFileError
from vramscope.engine.files.base.output_file import check_writable, place_output
from vramscope.engine.model import Evidence
from vramscope.engine.sampling.series_source import open_series
from vramscope.exporters.json_lines import encode_report, write_report
from vramscope.exporters.reports.profile import build_export, build_profile

from .logs import DRIVER, GIB, make_device, make_finding, make_log, make_sample


def test_a_report_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    mode = stat.S_IMODE(path.stat().st_mode)
    report = build_profile(make_log([make_sample(0, make_device(GIB))]), DRIVER)
    write_report(report, path)
    assert json.loads(path.read_bytes())["summary"]["total_devices"] == 1
    assert [it.name for it in tmp_path.iterdir()] == ["report.json"]
    assert stat.S_IMODE(path.stat().st_mode) == mode, "it keeps its mode"


def test_a_number_that_json_lacks_is_null() -> None:
    log = make_log([make_sample(0, make_device(GIB))])
    log.take([make_finding(evidence=(Evidence("rate", float("nan"), "bytes/s"),))])
    (finding,) = json.loads(encode_report(build_profile(log, DRIVER)))["findings"]
    assert finding["evidence"]["rate"]["value"] is None


def test_json_is_indented_by_two() -> None:
    assert encode_report(build_profile(make_log([]), DRIVER)).startswith(
        b'{\n  "schema": "vramscope.profile/1"'
    )


@pytest.mark.parametrize(
    ("name", "reason"), [("", "is a folder"), ("missing/report.json", "there is no folder")]
)
def test_what_could_not_be_written_is_refused_beforehand(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(OutputFileError, match=reason):
        check_writable(tmp_path / name)


def test_a_folder_that_goes_meanwhile_is_said(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "report.json"
    with pytest.raises(OutputFileError, match="cannot be written: No such file"):
        write_report(build_profile(make_log([]), DRIVER), path)


def test_an_export_with_allocator_figures_is_read_back_as_such(tmp_path: Path) -> None:
    device = make_device(40 * GIB, allocated=20 * GIB, reserved=32 * GIB)
    log = make_log([make_sample(t, device, make_device(5 * GIB, index=1)) for t in range(3)])
    path = tmp_path / "snapshots.json"
    write_report(build_export(log, interval_s=1.0), path)
    samples = list(open_series(path).samples())
    first, second = samples[-1].devices
    assert first.allocator is not None
    assert (first.allocator.allocated_bytes, first.allocator.reserved_bytes) == (20 * GIB, 32 * GIB)
    assert first.memory.used_bytes == 40 * GIB
    assert second.memory.used_bytes == 5 * GIB
    assert second.allocator is None or second.allocator.allocated_bytes is None


def test_a_link_is_refused_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "latest.json"
    target.write_text("old")
    link.symlink_to(target)
    for write in (partial(write_report, build_profile(make_log([]), DRIVER)), check_writable):
        with pytest.raises(OutputFileError, match=r"latest\.json: a symbolic link to .*target\.json"):
            write(link)
    assert link.is_symlink()
    assert target.read_text() == "old"


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_report(build_profile(make_log([]), DRIVER), pipe)
        assert json.loads(os.read(reader, 65536))["devices"] == {}
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_dash_is_standard_output_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    dash = Path("-")
    check_writable(dash)
    write_report(build_profile(make_log([]), DRIVER), dash)
    assert json.loads(capfdbinary.readouterr().out)["devices"] == {}
    with pytest.raises(OutputFileError, match="standard output cannot hold a database"), place_output(dash):
        pass
    assert not list(tmp_path.iterdir())
