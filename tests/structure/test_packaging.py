"""What `pip install .` ships: the wheel and the source distribution hold the whole program."""

import configparser
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.components import missing
from tests.structure.tree import PRODUCT_FOLDERS, ROOT, python_files
from vramscope.cli.frame.parse import list_verbs

SETUPTOOLS_WITH_LICENSE_EXPRESSIONS = 77
EPOCH = "1700000000"


def _build(source: Path, destination: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution as `make dist` does, without the network."""
    if int(importlib.metadata.version("setuptools").split(".")[0]) < SETUPTOOLS_WITH_LICENSE_EXPRESSIONS:
        missing("setuptools 77 or newer is not installed (pip install 'setuptools>=77')")
    _run_here([sys.executable, str(ROOT / ".ci/build-dist"), str(destination)], source)
    (wheel,), (sdist,) = destination.glob("*.whl"), destination.glob("*.tar.gz")
    return wheel, sdist


def _run_here(command: list[str], source: Path) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    result = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def _copy_tree(destination: Path) -> Path:
    """Copy what is built from, links kept as links, so that building leaves the checkout alone."""
    destination.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, destination)
    for name in PRODUCT_FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, destination / name, symlinks=True, ignore=ignored)
    return destination


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("built")
    return _build(_copy_tree(folder / "tree"), folder / "dist")


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, Path]) -> Path:
    return built[0]


def _expected_files() -> set[str]:
    """Name every file of the program as it shall stand in the package."""
    sources = {str(path.relative_to(ROOT)) for path in python_files(PRODUCT_FOLDERS)}
    sources |= {str(path.relative_to(ROOT)) for path in (ROOT / "tui").rglob("*.tcss")}
    return {name if name.startswith("vramscope/") else f"vramscope/{name}" for name in sources} | {
        "vramscope/py.typed",
        "vramscope/example.vscope",
    }


def test_wheel_ships_every_file_of_the_program_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name and ".data/" not in name}
    assert names == _expected_files()


def test_packages_install_manual_pages_and_completions(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shared = {name.partition(".data/data/")[2] for name in archive.namelist()} - {""}
    pages = {f"share/man/man1/vramscope-{verb}.1" for verb in list_verbs()}
    assert shared == pages | {
        "share/man/man1/vramscope.1",
        "share/bash-completion/completions/vramscope",
        "share/zsh/site-functions/_vramscope",
        "share/fish/vendor_completions.d/vramscope.fish",
    }


def test_wheel_declares_command_plug_ins_and_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        entry_points = configparser.ConfigParser()
        entry_points.read_string(archive.read(f"{info}/entry_points.txt").decode())
        metadata = archive.read(f"{info}/METADATA").decode()
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert entry_points["console_scripts"]["vramscope"] == "vramscope.__main__:main"
    assert entry_points["vramscope.analyzers"]["pressure"] == "vramscope.analyzers.pressure:PressureAnalyzer"
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Dist: textual==" in metadata


def test_builds_of_another_day_umask_and_of_the_source_distribution_are_the_same_to_the_byte(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel, sdist = built
    tree = _copy_tree(tmp_path / "tree")
    for path in tree.rglob("*"):
        os.utime(path, (1.0e9, 1.0e9), follow_symlinks=False)
        if path.is_file() and not path.is_symlink():
            path.chmod(0o600)
    # What an earlier build left of files that are no longer there.
    for name in ("build/lib/vramscope/engine/of_yesterday.py", "share/man/man1/vramscope-of-yesterday.1"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text("")
    again = _build(tree, tmp_path / "again")
    assert [it.read_bytes() for it in again] == [it.read_bytes() for it in built]
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    _run_here([sys.executable, "-c", code, str(tmp_path)], source)
    (of_source,) = tmp_path.glob("*.whl")
    assert of_source.read_bytes() == wheel.read_bytes()


def test_installed_wheel_runs_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)  # noqa: S202  (built above, from this tree)
    result = subprocess.run(
        [sys.executable, "-m", "vramscope", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["vramscope", _version_of(wheel)]


def _version_of(wheel: Path) -> str:
    """Return the version in the name of a wheel."""
    return wheel.name.split("-")[1]


@pytest.mark.parametrize("name", ["constraints.txt", ".ci/tools.txt"])
def test_every_package_that_is_installed_has_one_exact_version(name: str) -> None:
    """So a list of them (`make sbom`) says what is there, and an audit asks about that."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+-]+", line)] == []


def _list_pinned() -> list[dict[str, str]]:
    """Return what `make sbom` is to list: names as they are written, PURLs with normalized ones."""
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    return [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name.lower().replace('_', '-')}@{version}",
        }
        for name, _, version in (line.partition("==") for line in pins)
    ]


def _check_sbom(components: list[dict[str, str]], folder: Path) -> tuple[int, str]:
    path = folder / "vramscope.cdx.json"
    about = {"component": {"type": "application", "name": "vramscope"}}
    path.write_text(json.dumps({"bomFormat": "CycloneDX", "metadata": about, "components": components}))
    command = [sys.executable, str(ROOT / ".ci/check-sbom"), str(path), str(ROOT / "constraints.txt")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, result.stdout.replace(f"{path}: ", "")


def test_a_list_of_packages_has_each_pinned_one_with_its_version(tmp_path: Path) -> None:
    listed = _list_pinned()
    assert len(listed) > 50
    assert _check_sbom(listed, tmp_path) == (0, f"{tmp_path / 'vramscope.cdx.json'}\n")
    first, second, *others = listed
    assert _check_sbom(others, tmp_path) == (
        1,
        f"{first['name']} is {first['version']} pinned, and not listed\n"
        f"{second['name']} is {second['version']} pinned, and not listed\n",
    )
    other = {**first, "version": "0.0.1"}
    code, said = _check_sbom([other, second, *others], tmp_path)
    assert code == 1
    assert f"{first['name']} is {first['version']} pinned, and 0.0.1 listed" in said
    assert f"has the PURL '{first['purl']}'" in said
    code, said = _check_sbom([*listed, {**first, "name": "stranger"}], tmp_path)
    assert (code, "stranger is not pinned" in said) == (1, True)
    assert _check_sbom([*listed, first], tmp_path) == (1, f"{first['name']} is listed twice\n")
