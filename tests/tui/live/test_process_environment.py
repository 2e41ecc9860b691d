"""The environment of a process: what it was started with, of one's own processes here, without secrets."""

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from msgspec.structs import replace

from tests.tui.canned import NODE, FakeFeed, make_app, make_device, make_sample, make_snapshot
from tests.tui.looks import notices, shown_text
from vramscope.engine.masking import MASKED, mask_variable
from vramscope.engine.model import ProcessReading
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.process_environment import (
    EnvironmentRefused,
    describe_environment,
    read_environment,
    refuse_environment,
)
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.screens.dialogs import TextScreen

SECRET = "hunter2-do-not-show"  # noqa: S105 - of a test
SLEEPER = "import signal; print('ready', flush=True); signal.pause()"


@pytest.fixture
def job() -> Iterator[subprocess.Popen[str]]:
    """Run a process with secrets in its environment."""
    variables = {
        "PATH": os.environ["PATH"],
        "CUDA_VISIBLE_DEVICES": "0,1",
        "WANDB_API_KEY": SECRET,
        "HTTPS_PROXY": f"http://me:{SECRET}@proxy:3128",
    }
    command = [sys.executable, "-c", SLEEPER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def reading_of(job: subprocess.Popen[str], **changes: object) -> ProcessReading:
    started_s = psutil.Process(job.pid).create_time()
    return replace(ProcessReading(job.pid, "user1", "train", 1 << 30, started_s=started_s), **changes)


def app_with(process: ProcessReading, policy: SignalPolicy | None = None) -> VramscopeApp:
    device = replace(make_device(0), processes=(process,))
    return make_app(FakeFeed(make_snapshot(sample=make_sample((device,)))), policy=policy)


@pytest.mark.parametrize(
    "name",
    [
        *("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "PGPASSFILE", "MYSQL_PWD"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "github_token", "SSH_PRIVATE", "SESSION_COOKIE", "SENTRY_DSN"),
        *("SLACK_WEBHOOK", "BASIC_AUTH", "CARD_PIN", "X_SIGNATURE", "APIKEY", "PASSPHRASE"),
    ],
)
def test_what_is_named_like_a_secret_is_masked(name: str) -> None:
    assert mask_variable(name, SECRET) == MASKED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("PATH", "/usr/bin"),
            ("PWD", "/home"),
            ("OLDPWD", "/"),
            ("SSH_AUTH_SOCK", "/tmp/a"),
            ("HOME", "/"),
        ),
        *(("NCCL_DEBUG", "INFO"), ("PIP_CERT", "/etc/ca.crt"), ("MASTER_ADDR", "http://host:29500/x@y")),
        *(("HF_TOKEN", ""), ("PINNED", "1")),
    ],
)
def test_everything_else_is_shown(name: str, value: str) -> None:
    assert mask_variable(name, value) == value


def test_a_password_in_an_address_is_masked_whatever_its_name() -> None:
    assert mask_variable("URL", f"postgres://me:{SECRET}@db/x") == f"postgres://me:{MASKED}@db/x"


def test_a_real_process_is_read_without_its_secrets(job: subprocess.Popen[str]) -> None:
    variables = read_environment(reading_of(job))
    assert variables["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert SECRET not in str(variables)
    text = describe_environment(variables)
    assert text.startswith(f"{len(variables)} variables, as they were when the process started. 2 masked")
    assert "\nCUDA_VISIBLE_DEVICES=0,1\n" in text


def test_an_empty_environment_is_said_in_words() -> None:
    assert describe_environment({}).startswith("The process has no variables")
    assert "No value is masked." in describe_environment({"A": "b"})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"started_s": 1.0}, "now belongs to another process"), ({"pid": 2**22 + 1}, "has exited")],
)
def test_another_process_is_not_read(
    job: subprocess.Popen[str], changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(EnvironmentRefused, match=reason):
        read_environment(reading_of(job, **changes))


@pytest.mark.parametrize(
    ("changes", "policy", "reason"),
    [
        ({}, SignalPolicy(local_node="other"), f"runs on {NODE}"),
        ({}, SignalPolicy(is_replay=True), "part of a recording"),
        ({"location": "outside"}, SignalPolicy(), "outside this container"),
        ({"location": "gone"}, SignalPolicy(), "has exited"),
    ],
)
def test_of_processes_elsewhere_it_is_refused_with_the_reason(
    changes: dict[str, object], policy: SignalPolicy, reason: str
) -> None:
    process = replace(ProcessReading(7), **changes)
    assert reason in (refuse_environment(process, NODE, False, policy) or "")
    assert refuse_environment(ProcessReading(7), NODE, False, SignalPolicy(is_read_only=True)) is None


async def test_e_shows_it_over_the_list_and_in_the_history_of_the_process(
    job: subprocess.Popen[str],
) -> None:
    app = app_with(reading_of(job))
    async with app.run_test(size=(120, 40)) as pilot:
        for keys in (("tab", "e"), ("escape", "enter", "e")):
            await pilot.press(*keys)
            await pilot.pause()
            assert isinstance(app.screen, TextScreen)
            text = shown_text(app)
            assert f"Environment of process {job.pid}" in text
            assert "CUDA_VISIBLE_DEVICES=0,1" in text
            assert f"WANDB_API_KEY={MASKED}" in text
            assert SECRET not in text


async def test_a_refusal_is_told_and_a_process_must_be_selected(job: subprocess.Popen[str]) -> None:
    app = app_with(reading_of(job), SignalPolicy(local_node="other"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("e")
        assert "Select a process first" in notices(app)[-1]
        await pilot.press("tab", "e")
        assert f"runs on {NODE}" in notices(app)[-1]
        assert app.screen is app.live


async def test_a_long_text_leaves_the_hint_below_it_in_sight() -> None:
    app = app_with(ProcessReading(7))
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(TextScreen("Environment", "\n".join(f"V{number}=1" for number in range(60))))
        await pilot.pause()
        text = shown_text(app)
        assert "V0=1" in text
        assert "V59=1" not in text
        assert "Esc closes, up and down scroll" in text
        await pilot.press("end")
        assert "V59=1" in shown_text(app)
