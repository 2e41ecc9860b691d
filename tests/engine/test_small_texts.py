"""Small texts that a person names or finds in the folder of a stranger: read at once or refused at once."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vramscope.engine.cluster.addresses import read_hosts_file
from vramscope.engine.errors import InputFileError, UsageError, VramscopeError
from vramscope.engine.files.case_table import read_case_table
from vramscope.engine.files.cluster_file import read_cluster_file
from vramscope.engine.files.run_config import read_model_config, read_run_config
from vramscope.engine.settings import load_settings, save_settings
from vramscope.engine.settings.layers import FILE_LIMIT_BYTES, read_settings_file
from vramscope.engine.units import parse_bytes, parse_device_bytes, parse_duration

Reader = Callable[[Path], object]

MOST_S = 1.0
"""CPU of one refusal."""
READERS: dict[str, Reader] = {
    "settings": read_settings_file,
    "saved settings": lambda path: save_settings({"theme": "dark"}, path=path),
    "folder's settings": lambda path: load_settings(environ={"VRAMSCOPE_CONFIG": str(path)}),
    "hosts": read_hosts_file,
    "cluster": read_cluster_file,
    "run": read_run_config,
    "model": read_model_config,
    "cases": read_case_table,
}


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [make_pipe, make_loop, make_device, make_socket, make_huge, Path.mkdir])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_small_text_is_refused_in_one_line(
    name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "a.toml"
    make(path)
    with pytest.raises(VramscopeError) as caught:
        READERS[name](path)
    assert caught.value.exit_code == 2
    told = str(caught.value)
    assert told.removeprefix("settings not saved: ").startswith((str(path), os.path.realpath(path)))
    assert told.isprintable()


def fill(text: str) -> str:
    """Repeat a text up to the size at which a file would be refused unread."""
    return text * (FILE_LIMIT_BYTES // len(text.encode()))


HOSTILE = {
    "a key of many parts": ".".join("a" * (FILE_LIMIT_BYTES // 2 - 4)) + " = 1",
    "a table of many parts": f"[{'.'.join('a' * (FILE_LIMIT_BYTES // 2 - 4))}]",
    "keys of some parts": "\n".join(f"{'.'.join('b' * 15)}.c{n} = 1" for n in range(5000)),
    "keys below a table of some parts": f"[{'.'.join('b' * 15)}]\n"
    + "\n".join(f"{'.'.join('b' * 15)}.c{n} = 1" for n in range(5000)),
    "lists in lists": "theme = " + "[" * (FILE_LIMIT_BYTES - 16),
    "tables in tables": "theme = " + fill("{a=")[:-32],
    "many unknown keys": "\n".join(f"k{n} = 1" for n in range(20_000)),
    "a key of one word": fill("k")[:-8] + " = 1",
    "a long value": f'theme = "{fill("x")[:-16]}"',
    "a list of many": f"theme = [{fill('1,')[:-16]}]",
    "a number of many digits": "interval = " + fill("9")[:-16],
    "a number in hexadecimal": "interval = 0x" + fill("f")[:-16],
    "a number beyond all": "interval = 1e999",
    "a fraction of many digits": "theme = 1." + fill("1")[:-16],
    "no number": "interval = nan",
    "a date": "interval = 2026-01-31T10:00:00Z",
    "blanks": 'x = """\n' + fill(" ")[:-64] + '\n"""\ntheem = 1',
    "a text that does not end": 'x = """' + fill('""\\"')[:-16],
    "zero bytes": fill("\0"),
    "escape sequences": '"\\u001b]0;x\\u0007\\u001b[2J" = 1',
    "escape sequences as a value": 'theme = "\\u001b[2J\\u202e"',
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_settings_of_a_stranger_are_refused_at_once(content: str, tmp_path: Path) -> None:
    (tmp_path / "vramscope.toml").write_text(content, encoding="utf-8")
    started_s = time.process_time()
    with pytest.raises(InputFileError) as caught:
        load_settings(environ={"XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path)
    assert time.process_time() - started_s < MOST_S
    told = str(caught.value)
    assert told.startswith(f"{tmp_path}/vramscope.toml")
    assert told.isprintable()
    assert len(told) < 700


def test_a_deep_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('# [[[[\nname = "a.b.c.[["\n\nnodes = ' + "[" * 40)
    for read in (read_settings_file, read_cluster_file, read_run_config):
        with pytest.raises(InputFileError, match=r"a\.toml:4: nested deeper than 32 levels"):
            read(path)


def test_texts_with_dots_and_brackets_are_no_nesting(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    dots = "." * 500 + "[" * 500
    path.write_text(
        f'theme = "dark" # {dots}\n[alerts]\n'
        f'command = ["{dots}", \'{dots}\', """\n{dots}\\"\n""", \'\'\'{dots}\'\'\']\n'
    )
    assert read_settings_file(path)["theme"] == "dark"


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GiB", 80 << 30), ("85899345920", 80 << 30), ("80B", 80), ("1048576", 1 << 20), ("0", 0)],
)
def test_a_size_of_a_device_may_be_in_bytes_where_that_is_meant(text: str, size: int) -> None:
    assert parse_device_bytes(text) == size


@pytest.mark.parametrize("parse", [parse_bytes, parse_duration])
def test_a_number_beyond_all_numbers_is_refused_in_a_short_line(parse: Callable[[str], float]) -> None:
    with pytest.raises(UsageError, match=r"^too l") as raised:
        parse("9" * 400)
    assert len(str(raised.value)) < 120
