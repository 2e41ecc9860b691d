"""Settings: one order of precedence, every fault told by place and expectation, comments kept on saving."""

import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests import REPOSITORY
from vramscope.engine.errors import InputFileError, PackageMissingError, UsageError
from vramscope.engine.model import SEVERITIES
from vramscope.engine.settings import (
    SETTING_KEYS,
    AlertLevel,
    LoadedSettings,
    Settings,
    SortColumn,
    load_settings,
    save_settings,
)
from vramscope.engine.settings.layers import FILE_LIMIT_BYTES, list_unknown_variables, read_settings_file

SECURITY = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")
CONFIGS = Path(__file__).parent
VALID = sorted((CONFIGS / "valid_configs").glob("*.toml"))
INVALID = sorted((CONFIGS / "invalid_configs").glob("*.toml"))


def load(
    folder: Path,
    *,
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    user: str | None = None,
    project: str | None = None,
) -> LoadedSettings:
    """Load settings from layers of text."""
    environ = {"HOME": str(folder / "home"), **(environ or {})}
    if user is not None:
        path = folder / "home/.config/vramscope/config.toml"
        path.parent.mkdir(parents=True)
        path.write_text(user)
    work = folder / "work"
    work.mkdir()
    if project is not None:
        (work / "vramscope.toml").write_text(project)
    return load_settings(flags, environ=environ, folder=work)


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert loaded.settings == Settings()
    assert loaded.files == ()
    assert loaded.origins == {}


def test_each_layer_gives_way_to_the_next(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        user='interval = 2\nmemory_interval = 0.2\ntheme = "light"\nsort = "user"\n',
        project='memory_interval = 0.3\ntheme = "mono"\nsort = "pid"\n',
        environ={"VRAMSCOPE_THEME": "high-contrast", "VRAMSCOPE_SORT": "command"},
        flags={"sort": "device", "interval": None},
    )
    settings = loaded.settings
    assert settings.interval_s == 2
    assert settings.memory_interval_s == 0.3
    assert settings.theme == "high-contrast"
    assert settings.sort == "device"
    assert [path.name for path in loaded.files] == ["config.toml", "vramscope.toml"]
    assert loaded.origins["sort"] == "flag"
    assert loaded.origins["theme"] == "VRAMSCOPE_THEME"
    assert loaded.origins["memory_interval"].endswith("vramscope.toml")
    assert loaded.origins["interval"].endswith("config.toml")


def test_a_named_file_is_the_only_one_read(tmp_path: Path) -> None:
    named = tmp_path / "mine.toml"
    named.write_text("interval = 3\n")
    (tmp_path / "vramscope.toml").write_text("interval = 4\nmouse = false\n")
    for loaded in (
        load_settings(config=named, environ={}, folder=tmp_path),
        load_settings(environ={"VRAMSCOPE_CONFIG": str(named)}, folder=tmp_path),
    ):
        assert loaded.settings.interval_s == 3
        assert loaded.settings.mouse is None
        assert loaded.files == (named,)


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        InputFileError,
        match=r"none\.toml: cannot be read: no such file or directory; expected a settings file",
    ):
        load_settings(config=tmp_path / "none.toml")


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_a_valid_file_is_read(path: Path) -> None:
    load_settings(config=path, environ={})


def test_the_file_with_every_setting_has_every_setting() -> None:
    assert set(read_settings_file(CONFIGS / "valid_configs/every_setting.toml")) == set(SETTING_KEYS)


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_an_invalid_file_is_refused_with_file_line_key_and_expectation(path: Path) -> None:
    expectation = path.read_bytes().partition(b"\n")[0].decode().removeprefix("# expect: ")
    with pytest.raises(InputFileError) as caught:
        load_settings(config=path, environ={})
    assert str(caught.value).startswith(str(path))
    assert expectation.strip() in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'theme = "\xff\xfe"\n', "line 1, column 10: not UTF-8 text; expected a settings file"),
        (b'theme = "da\x00rk"\n', "not TOML: "),
    ],
)
def test_a_file_that_is_no_text_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        read_settings_file(path)
    assert str(caught.value).startswith(f"{path}: {told}")


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="is a directory"):
        load_settings(config=tmp_path)


def test_an_endless_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_bytes(b"#" * (FILE_LIMIT_BYTES + 1))
    with pytest.raises(InputFileError, match="too large; expected at most 256 KiB"):
        read_settings_file(path)


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("VRAMSCOPE_INTERVAL", "500ms", "interval_s", 0.5),
        ("VRAMSCOPE_INTERVAL", "2", "interval_s", 2.0),
        ("VRAMSCOPE_ASCII", "1", "ascii", True),
        ("VRAMSCOPE_ASCII", "no", "ascii", False),
        ("VRAMSCOPE_READ_ONLY", "True", "read_only", True),
        ("VRAMSCOPE_THEME", "", "theme", None),
        ("NO_COLOR", "1", "color", False),
        ("NO_COLOR", "", "color", None),
    ],
)
def test_variables_are_understood(
    variable: str, text: str, field: str, value: object, tmp_path: Path
) -> None:
    assert getattr(load(tmp_path, environ={variable: text}).settings, field) == value


def test_our_own_variable_beats_no_color(tmp_path: Path) -> None:
    loaded = load(tmp_path, environ={"NO_COLOR": "1", "VRAMSCOPE_COLOR": "true"})
    assert loaded.settings.color is True


def test_a_wrong_variable_is_named_with_its_value_and_the_expectation(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"VRAMSCOPE_THEME=pink: expected one of dark, light"):
        load(tmp_path, environ={"VRAMSCOPE_THEME": "pink"})


def test_a_wrong_flag_is_named_with_its_value_and_the_expectation(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--memory-interval soon: expected seconds or a duration"):
        load(tmp_path, flags={"memory_interval": "soon"})


@pytest.mark.parametrize(
    "line", ['command = ["touch", "here"]', 'webhook_url = "https://example.org/"', 'command = "true"']
)
def test_what_runs_or_sends_something_is_not_taken_from_the_file_of_a_folder(
    line: str, tmp_path: Path
) -> None:
    with pytest.raises(InputFileError, match=r"vramscope\.toml:2: alerts\.\w+ is ignored .*config\.toml"):
        load(tmp_path, project=f"[alerts]\n{line}\n")


FROM_ANY_FOLDER = {
    *("interval", "memory_interval", "history_window", "theme", "color", "ascii", "mouse", "read_only"),
    *("sort", "sort_reversed", "columns", "tree", "alerts.bell", "alerts.bell_level"),
}
"""What may come with a stranger's repository, as docs/security.md lists it."""


def test_the_file_of_a_folder_sets_the_look_and_silences_nothing(tmp_path: Path) -> None:
    named = set(re.findall(r"`([a-z_.]+)`", SECURITY.partition("can set ")[2].partition(".\n")[0]))
    assert named == FROM_ANY_FOLDER
    path = tmp_path / "vramscope.toml"
    refused = set()
    for key in SETTING_KEYS:
        table, _, name = key.rpartition(".")
        value = VALUES.get(key, "true")
        path.write_text(f"[{table}]\n{name} = {value}\n" if table else f"{name} = {value}\n")
        if key in FROM_ANY_FOLDER:
            load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path)
            continue
        with pytest.raises(InputFileError, match=rf"{key} is ignored in a folder's file"):
            load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path)
        refused.add(key)
    assert {"alerts.on", "alerts.level", "alerts.kinds", "record.folder"} <= refused


VALUES = {
    **dict.fromkeys(("interval", "memory_interval", "history_window", "alerts.timeout"), "10"),
    **dict.fromkeys(("alerts.level", "alerts.bell_level"), '"critical"'),
    **dict.fromkeys(("alerts.kinds", "alerts.on", "serving", "columns"), "[]"),
    **dict.fromkeys(("alerts.command_format", "alerts.webhook_format"), '"vramscope"'),
    "alerts.command": '"true"',
    "alerts.webhook_url": '"http://127.0.0.1:1/x"',
    "attach": '"never"',
    "record.folder": '"/"',
    "sort": '"pid"',
    "theme": '"mono"',
}
"""A valid value of each setting that is not true or false."""


def test_what_runs_something_is_taken_from_the_users_own_file_and_variables(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        user='[alerts]\ncommand = "logger -t gpu"\n',
        project="[alerts]\nbell = false\n",
        environ={"VRAMSCOPE_ALERTS_WEBHOOK_URL": "http://127.0.0.1:1/x", "VRAMSCOPE_ALERTS_ON": "opened"},
    )
    alerts = loaded.settings.alerts
    assert alerts.command == ("logger", "-t", "gpu")
    assert not alerts.bell
    assert alerts.webhook_url == "http://127.0.0.1:1/x"
    assert alerts.on == ("opened",)
    assert loaded.origins["alerts.webhook_url"] == "VRAMSCOPE_ALERTS_WEBHOOK_URL"


def test_a_wrong_address_is_refused_without_repeating_what_may_be_secret(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="VRAMSCOPE_ALERTS_WEBHOOK_URL=…: expected an address") as caught:
        load(tmp_path, environ={"VRAMSCOPE_ALERTS_WEBHOOK_URL": "ftp://me:hidden@example.org"})
    assert "hidden" not in str(caught.value)


def test_the_levels_of_alerts_are_the_severities_of_findings() -> None:
    assert get_args(AlertLevel) == SEVERITIES


def test_variables_that_mean_nothing_are_listed() -> None:
    environ = {"VRAMSCOPE_INTERVALL": "1", "VRAMSCOPE_THEME": "dark", "VRAMSCOPE_DEBUG": "1", "HOME": "/"}
    environ |= {"VRAMSCOPE_ALERTS_BELL": "0", "VRAMSCOPE_FINDING_ID": "seen by the command of a hook"}
    assert list_unknown_variables(environ) == ["VRAMSCOPE_INTERVALL"]


def test_saving_makes_the_users_file_and_loading_finds_it(private_environment: Path) -> None:
    path = save_settings({"theme": "light", "sort_reversed": True})
    assert path == (private_environment / "home/.config/vramscope/config.toml").resolve()
    settings = load_settings(folder=private_environment).settings
    assert (settings.theme, settings.sort_reversed) == ("light", True)


def test_saving_keeps_comments_order_and_other_settings(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('# mine\nsort = "pid"  # by number\n\n# look\ntheme = "dark"\ninterval = "500ms"\n')
    save_settings({"theme": "mono", "mouse": False}, path=path)
    assert path.read_text() == (
        '# mine\nsort = "pid"  # by number\n\n# look\ntheme = "mono"\ninterval = "500ms"\nmouse = false\n'
    )


def test_saving_takes_fields_by_their_name_in_the_program_and_removes_what_is_none(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('theme = "dark"\n')
    save_settings({"interval_s": 2.0, "theme": None}, path=path)
    assert path.read_text() == "interval = 2.0\n"


def test_saving_writes_into_a_table(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('theme = "dark"\n\n[alerts]\nbell = true  # loud\n')
    save_settings({"alerts.bell": False, "alerts.timeout_s": 3}, path=path)
    assert path.read_text() == 'theme = "dark"\n\n[alerts]\nbell = false  # loud\ntimeout = 3.0\n'


def test_saving_writes_through_a_link_and_keeps_the_mode(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("")
    real.chmod(0o600)
    link = tmp_path / "config.toml"
    link.symlink_to(real)
    save_settings({"mouse": False}, path=link)
    assert link.is_symlink()
    assert real.read_text() == "mouse = false\n"
    assert real.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "dotfiles.toml"]


@pytest.mark.parametrize("values", [{"them": "dark"}, {"theme": "pink"}])
def test_saving_refuses_what_loading_would_refuse(values: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(UsageError):
        save_settings(values, path=path)
    assert not path.exists()


def test_saving_leaves_a_broken_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("theme = dark\n")
    with pytest.raises(InputFileError, match="settings not saved"):
        save_settings({"theme": "light"}, path=path)
    assert path.read_text() == "theme = dark\n"


def test_saving_where_nothing_can_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputFileError, match="settings not saved"):
        save_settings({"theme": "light"}, path=tmp_path / "file" / "config.toml")


def test_saving_without_tomlkit_names_the_extra_and_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# mine\n")
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    with pytest.raises(PackageMissingError) as refused:
        save_settings({"theme": "light"}, path=path)
    assert str(refused.value) == ("this needs tomlkit: pip install 'vramscope[settings]'")
    assert path.read_text() == "# mine\n"


def test_every_sort_column_can_be_set() -> None:
    for column in get_args(SortColumn):
        assert load_settings({"sort": column}, environ={}, folder=Path("/")).settings.sort == column
