"""Each file that any verb reads is known to all: what a verb does not read, its refusal says who does."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from vramscope.cli.application import run
from vramscope.engine.files.detect import identify

from .formats import COMMANDS, write_samples

TOO_LITTLE = "tells its stage"
"""Said of a file that was read, and does not hold what the verb is about."""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The files, each written once."""
    folder = tmp_path_factory.mktemp("formats")
    kept = os.environ.copy()
    yield write_samples(folder)
    os.environ.clear()
    os.environ.update(kept)
    shutil.rmtree(folder)


@pytest.mark.parametrize("usage", COMMANDS)
def test_a_verb_reads_a_file_or_says_what_it_is_and_who_reads_it(
    usage: str,
    samples: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("VRAMSCOPE_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    wrong = []
    for number, (name, path) in enumerate(samples.items()):
        out = tmp_path / str(number)
        out.mkdir()
        monkeypatch.delenv("VRAMSCOPE_CONFIG", raising=False)
        code = run(COMMANDS[usage](str(path), out, samples["snapshot"]))
        said = capfd.readouterr().err
        kind = identify(path)
        is_refused = code == 2 and f"vramscope: {path}" in said
        if kind is None:
            wrong.append(f"{name}: is not known")
        elif (
            code == 1
            or (is_refused and kind.is_read_by(usage))
            or (not is_refused and not kind.is_read_by(usage))
        ):
            wrong.append(f"{name}: {code} {said[-200:]!r}, though {kind}")
        elif is_refused and kind.words not in said:
            wrong.append(f"{name}: {said!r} does not say that it is {kind.words}")
        elif is_refused and not all(f"`vramscope {reader}`" in said for reader in kind.readers):
            wrong.append(f"{name}: {said!r} does not name {kind.readers}")
    assert not wrong, "\n".join(wrong)


def test_a_profile_of_galvatron_by_numbers_of_layers_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "computation_profiling_bf16_llama2-7b.json"
    path.write_text('{"layernum[2]_bsz8_seq2048": 12.5, "layernum[4]_bsz8_seq2048": 20.5}')
    assert run(["inspect", str(path), "--text"]) == 2
    assert "a computation profile of Galvatron without layertype entries" in capsys.readouterr().err
    assert run(COMMANDS["plan --calibrate-time"](str(path), tmp_path, path)) == 2
    assert "no entry such as layertype_0_bsz8_seq2048" in capsys.readouterr().err
