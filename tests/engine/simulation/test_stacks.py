"""Blocks know who asked for them: the right file, and without keeping every program that ever ran."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.components import require_package
from tests.later import LaterModule

pytestmark = pytest.mark.loads_torch

if TYPE_CHECKING:
    from vramscope.engine.simulation import host_memory as stacks
    from vramscope.engine.simulation.host_memory import Stack
else:
    stacks = LaterModule("vramscope.engine.simulation.host_memory")

LAYER = "def forward(capture):\n    return capture()\n"


@pytest.fixture(autouse=True, scope="module")
def _torch() -> None:
    require_package("torch")


def load(path: Path) -> Callable[[Callable[[], Stack]], Stack]:
    """Return a function that is the same in every file."""
    names: dict[str, Callable[[Callable[[], Stack]], Stack]] = {}
    exec(compile(LAYER, str(path), "exec"), names)  # noqa: S102 - the text above
    return names["forward"]


def name_file(stack: Stack) -> object:
    return stack.frames[0]["filename"]


def test_like_functions_on_the_same_line_of_two_files_keep_their_files(tmp_path: Path) -> None:
    first, second = tmp_path / "encoder.py", tmp_path / "decoder.py"
    found = [load(path)(stacks.capture_stack) for path in (first, second)]
    assert [name_file(stack) for stack in found] == [str(first), str(second)]
    assert [stack.frames[0]["line"] for stack in found] == [2, 2]


def test_frames_of_torch_are_recorded_and_are_no_lines_of_the_user(tmp_path: Path) -> None:
    library = load(Path(stacks._TORCH) / "nn/layer.py")(stacks.capture_stack)
    assert name_file(library) == str(Path(stacks._TORCH) / "nn/layer.py")
    assert library.user_frames[0]["filename"] == __file__
    own = load(tmp_path / "layer.py")(stacks.capture_stack)
    assert name_file(own) == own.user_frames[0]["filename"] == str(tmp_path / "layer.py")


@pytest.mark.parametrize("name", ["_subclasses/fake_tensor.py", "utils/_python_dispatch.py", "_refs/nn.py"])
def test_frames_that_run_only_because_tensors_are_simulated_are_left_out(name: str) -> None:
    assert name_file(load(Path(stacks._TORCH) / name)(stacks.capture_stack)) == __file__


def test_calls_from_one_place_share_a_stack(tmp_path: Path) -> None:
    forward = load(tmp_path / "layer.py")
    first, second = (forward(stacks.capture_stack) for _ in range(2))
    assert first is second


def test_code_that_is_made_anew_forever_is_not_kept_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "MOST_STACKS", 8)
    monkeypatch.setattr(stacks, "MOST_FILES", 8)
    paths = [tmp_path / f"cell-{number}.py" for number in range(50)]
    found = [load(path)(stacks.capture_stack) for path in paths]
    assert len(stacks._known) <= 8
    assert len(stacks._is_user_file) <= 8
    assert [name_file(stack) for stack in found] == list(map(str, paths))
