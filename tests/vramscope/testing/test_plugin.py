"""`@pytest.mark.vram`: tests of a training program on a simulated card, against a stored baseline."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.structure.tree import ROOT
from tests.warm.starter import write_warm_python
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.testing.measuring import (
    Measured,
    Place,
    describe_measured,
    list_growth,
    read_baseline,
    read_mark,
    run_on_card,
    update_baseline,
)

MIB = 1 << 20
PROGRAM = """
import torch

def keep(rows):
    first = torch.empty(rows, 1 << 18, device="cuda")
    return first, torch.empty(2 * rows, 1 << 18, device="cuda")

def test_helper():
    pass
"""
TESTS = """
import pytest
from program import keep

@pytest.mark.vram(limit="8GiB", growth=1)
def test_grows():
    keep(200)

@pytest.mark.vram(limit="1GiB", fake=False)
def test_does_not_fit():
    keep(300)

@pytest.mark.vram(limit="1GiB")
def test_whose_first_request_does_not_fit():
    keep(3000)

@pytest.mark.vram(limit="8GiB")
def test_that_raises():
    keep(1)
    raise ValueError("of the test")

@pytest.mark.vram(limit="huge")
def test_on_no_card():
    pass

@pytest.mark.vram(limit="8GiB", grwoth=1)
def test_with_a_typing_error():
    pass

@pytest.fixture(scope="module")
def left_for_the_module():
    return 5

def test_plain(left_for_the_module):
    assert left_for_the_module == 5
"""
OTHER = """
import pytest
from program import keep

def test_of_another_file():
    pass

@pytest.mark.skip(reason="not now")
@pytest.mark.vram(limit="8GiB")
def test_skipped():
    raise AssertionError

@pytest.mark.xfail(reason="known")
@pytest.mark.vram(limit="none")
def test_expected_to_fail():
    pass

@pytest.mark.vram(limit="1GiB", fake=False)
def test_that_skips_itself():
    pytest.skip("no data")

@pytest.mark.vram(limit="1GiB", fake=False, growth=1)
def test_without_a_baseline():
    keep(1)
"""


def make_measured(**changes: object) -> Measured:
    given: dict[str, object] = {
        "limit_bytes": 8192 * MIB,
        "allocated_bytes": 600 * MIB,
        "reserved_bytes": 600 * MIB,
        "context_bytes": 512 * MIB,
        "places": (Place("program.py keep", 600 * MIB, 5),),
    }
    return Measured(**{**given, **changes})  # type: ignore[arg-type]


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [write_warm_python(folder), "-m", "pytest", *words, "--rootdir", str(folder)],
        cwd=folder,
        env={
            **environment,
            "PYTHONPATH": str(ROOT),
            # As an installed plug-in is found; this checkout may be installed without it.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "vramscope.testing.plugin",
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_a_test_is_measured_fails_where_it_grew_or_does_not_fit_and_leaves_others_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "test_program.py").write_text(TESTS)
    (tmp_path / "test_quick.py").write_text(OTHER)
    baseline = tmp_path / "vram-baseline.json"
    update_baseline(
        baseline, {"test_program.py::test_grows": make_measured(reserved_bytes=500 * MIB, places=())}
    )
    before = baseline.read_bytes()
    done = run_pytest(tmp_path, "-q", "-rs", "--vram-report")
    text = done.stdout
    assert done.returncode == 1, text + done.stderr
    assert "6 failed, 3 passed, 2 skipped, 1 xfailed" in text
    assert (
        f"growth was not compared, {baseline} has no size of test_quick.py::test_without_a_baseline" in text
    )
    assert "not now" in text
    assert "no data" in text
    assert 'expected @pytest.mark.vram(limit="8GiB")' in text
    assert "simulated memory grew by more than 1 %" in text
    assert "+600 MiB  program.py keep, line 6" in text
    assert text.count("\ndid not fit on a simulated card of 1GiB\n") == 2
    assert text.count("\nfailed in its own process\n") == 1
    assert "ValueError: of the test" in text
    assert "OutOfMemoryError" in text
    assert "device 'huge' is unknown" in text
    assert baseline.read_bytes() == before


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (
            {"limit": "1MiB"},
            r"limit 1 MiB: expected more than the 512 MiB context .*; give a larger limit$",
        ),
        ({"limit": "1GiB", "devices": 0}, "devices 0: expected 1 to 64 simulated cards"),
        ({"limit": "900TiB", "fake": False}, "limit: real tensors .*: leave out fake=False, which stores"),
        ({"limit": "mi300x"}, "not a GPU of CUDA"),
    ],
)
def test_a_card_that_cannot_be_is_refused_by_the_argument_of_the_mark(
    mark: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        run_on_card([sys.executable, "-c", ""], os.environ, read_mark((), mark), tmp_path)
    assert "--" not in str(refused.value)


def test_without_torch_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['torch'] = None\n")
    (tmp_path / "test_card.py").write_text(
        "import pytest\n@pytest.mark.vram(limit='8GiB')\ndef test_card(): pass\n"
    )
    done = run_pytest(tmp_path, "test_card.py")
    assert done.returncode == 1
    assert "@pytest.mark.vram: this needs torch: pip install" in done.stdout
    assert "pip install 'vramscope[train]'" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_baseline_that_is_named_and_not_there_ends_the_run(tmp_path: Path) -> None:
    """Else a typing error in a workflow would compare nothing, and pass."""
    done = run_pytest(tmp_path, "--vram-baseline", "baselin.json")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--vram-baseline baselin.json: no such file; --vram-update writes it" in done.stderr


def test_a_baseline_that_cannot_be_written_ends_the_run_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_card.py").write_text(
        "import pytest, torch\n"
        "@pytest.mark.vram('8GiB')\n"
        "def test_card(): torch.empty(1 << 20, device='cuda')\n"
    )
    done = run_pytest(tmp_path, "-q", "--vram-update", "--vram-baseline", "no/folder.json")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    said = done.stdout + done.stderr
    assert f"vramscope: {tmp_path}/no/folder.json: cannot be written: No such file or directory" in said
    assert "Traceback" not in said


def test_what_grew_is_named_by_function_and_what_shrank_comes_last() -> None:
    before = [Place("a.py f", 10), Place("a.py g", 7), Place("a.py h", 4)]
    now = [Place("a.py f", 10, 3), Place("a.py g", 9, 8), Place("b.py new", 5, 1)]
    assert list_growth(now, before) == [Place("b.py new", 5, 1), Place("a.py g", 2, 8), Place("a.py h", -4)]


def test_the_report_says_headroom_and_change_or_that_there_is_no_baseline() -> None:
    now = make_measured(reserved_bytes=620 * MIB)
    (head, *_) = describe_measured("test_a", now, None, 5)
    assert head == (
        "test_a: peak allocated 600 MiB, reserved 620 MiB of 8.0 GiB, 6.9 GiB headroom; no baseline"
    )
    assert next(describe_measured("test_a", now, now, 5)).endswith("; as before")
    assert next(describe_measured("test_a", now, make_measured(), 5)).endswith("; +20 MiB reserved")


def test_a_baseline_keeps_other_tests_and_one_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vram-baseline.json"
    assert read_baseline(path) == {}
    update_baseline(path, {"b": make_measured()})
    update_baseline(path, {"a": make_measured(allocated_bytes=1)})
    assert list(read_baseline(path)) == ["a", "b"]
    sound = path.read_text()
    for text in ('{"a": 5}', '{"a":' * 100_000, sound.replace(": 1,", f": {'9' * 400},", 1)):
        assert text != sound
        path.write_text(text)
        with pytest.raises(InputFileError, match="--vram-update"):
            read_baseline(path)
