"""One alert on its way: to a real HTTP receiver, and to real programs; every way it can fail is told."""

import base64
import gc
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.components import require
from tests.engine.alerts.findings import NOON_S, make_finding
from tests.engine.alerts.receiver import Receiver
from tests.hostile import HOSTILE, list_forbidden, poison
from tests.waiting import wait_until
from vramscope.engine.alerts.deliverer import MAX_VARIABLE_CHARS, DeliveryError, deliver, make_variables
from vramscope.engine.alerts.delivery import (
    Alert,
    DeliveryJob,
    Hook,
    make_alert,
)
from vramscope.engine.alerts.state import Crossing

PYTHON = sys.executable


def alert() -> Alert:
    return make_alert(Crossing("opened", make_finding(), "high"), "9.9")


def deliver_to(url: str = "", *, command: tuple[str, ...] | None = None, timeout_s: float = 5.0) -> None:
    hook = Hook(command=command, url=url or None, timeout_s=timeout_s, retry_after_s=0.01)
    deliver(DeliveryJob(hook, alert()))


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    """Keep alarms out of the callback that hypothesis has the collector call: raised there, they are lost."""
    gc.disable()
    yield
    gc.enable()


def reason_of(url: str = "", *, command: tuple[str, ...] | None = None, timeout_s: float = 5.0) -> str:
    with pytest.raises(DeliveryError) as caught:
        deliver_to(url, command=command, timeout_s=timeout_s)
    assert "s3cret" not in str(caught.value)
    return str(caught.value)


def test_a_webhook_gets_the_whole_finding_as_json() -> None:
    with Receiver() as receiver:
        deliver_to(receiver.url())
    assert len(receiver.bodies) == 1
    method, path, headers = receiver.requests[0]
    assert (method, path) == ("POST", "/hook?token=s3cret")
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == "vramscope/9.9"
    body = receiver.bodies[0]
    finding = make_finding()
    assert body["schema"] == "vramscope.alert/1"
    assert body["event"] == "opened"
    assert body["id"] == f"{finding.id}-opened"
    assert body["time_s"] == NOON_S
    assert body["text"] == "node: high: GPU 0 leaks 20 MiB a step. To do: detach what the list keeps"
    assert body["is_test"] is False
    assert msgspec.convert(body["finding"], type(finding)) == finding
    assert body["finding"]["evidence"][0] == {"name": "growth", "value": 20 << 20, "unit": "bytes"}


def test_user_and_password_of_an_address_become_basic_authentication() -> None:
    with Receiver() as receiver:
        deliver_to(receiver.url("/hook", user="me:p%40ss@"))
    _, _, headers = receiver.requests[0]
    assert base64.b64decode(headers["Authorization"].split()[1]) == b"me:p@ss"


def test_an_error_of_the_receiver_is_tried_once_more() -> None:
    with Receiver(500, 204) as receiver:
        deliver_to(receiver.url())
    assert [body["id"] for body in receiver.bodies] == [alert().id] * 2


def test_a_receiver_that_fails_twice_is_told_without_what_is_secret_in_its_address() -> None:
    with Receiver(500) as receiver:
        reason = reason_of(receiver.url())
        assert reason == f"http://127.0.0.1:{receiver.port}/… answered 500 Internal Server Error, twice"
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(("code", "told"), [(404, "answered 404 Not Found"), (403, "answered 403 Forbidden")])
def test_what_will_not_pass_is_not_tried_again(code: int, told: str) -> None:
    with Receiver(code) as receiver:
        assert reason_of(receiver.url()).endswith(told)
    assert len(receiver.requests) == 1


def test_an_address_that_leads_elsewhere_is_not_followed() -> None:
    with Receiver(302, 200) as receiver:
        assert "answered 302 Found; give the address it points to" in reason_of(receiver.url())
    assert len(receiver.requests) == 1


def test_a_receiver_that_hangs_is_given_up() -> None:
    with Receiver(0) as receiver:
        told = reason_of(receiver.url(), timeout_s=0.2)
    assert told.endswith("did not answer within 0.2 s, twice")


def test_a_receiver_that_drips_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = (
            "import socket, sys, time\n"
            "s = socket.socket(fileno=int(sys.argv[1]))\n"
            "while True:\n"
            "    c, _ = s.accept()\n"
            "    try:\n"
            "        c.send(b'HTTP/1.1 200 OK\\r\\n')\n"
            "        while True: c.send(b'x'); time.sleep(0.01)\n"
            "    except OSError: pass\n"
        )
        os.set_inheritable(listener.fileno(), True)
        dripping = subprocess.Popen(
            [PYTHON, "-c", code, str(listener.fileno())], pass_fds=[listener.fileno()]
        )
        try:
            told = reason_of(f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout_s=0.3)
        finally:
            dripping.kill()
            dripping.wait()
    assert told.endswith("did not answer within 0.3 s, twice")


def test_a_port_where_nobody_listens_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    told = reason_of(f"http://127.0.0.1:{port}/s3cret")
    assert told == f"http://127.0.0.1:{port}/… cannot be reached: Connection refused, twice"


def test_a_server_that_speaks_another_language_is_told() -> None:
    with Receiver() as receiver:
        told = reason_of(f"https://me:s3cret@127.0.0.1:{receiver.port}/")
    assert told.startswith(f"https://127.0.0.1:{receiver.port}/… ")


@pytest.mark.parametrize(
    "url", ["http://exa mple/s3cret", "http://127.0.0.1:99999/s3cret", "http://[::1/s3cret"]
)
def test_an_address_that_cannot_be_used_is_told_without_repeating_it(url: str) -> None:
    assert reason_of(url)


def make_certificate(folder: Path) -> Path:
    path = folder / "both.pem"
    subprocess.run(
        [
            *(require("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", folder / "key.pem", "-out", folder / "certificate.pem"),
        ],
        check=True,
        capture_output=True,
    )
    path.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
    return path


def test_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(tmp_path)
    with Receiver(certificate=certificate) as receiver:
        assert "has an untrusted certificate: self-signed certificate" in reason_of(receiver.url())
        assert receiver.bodies == []
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        deliver_to(receiver.url())
    assert len(receiver.bodies) == 1


def script(tmp_path: Path, text: str) -> tuple[str, ...]:
    path = tmp_path / "hook.py"
    path.write_text(text)
    return (PYTHON, str(path), "an argument; $(with) signs")


def test_a_command_gets_the_finding_on_its_input_and_in_variables(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    text = (
        "import json, os, sys\n"
        "found = {k: v for k, v in os.environ.items() if k.startswith('VRAMSCOPE_FINDING_')}\n"
        f"json.dump([json.load(sys.stdin), found, sys.argv[1:]], open({str(out)!r}, 'w'))\n"
    )
    deliver_to(command=script(tmp_path, text))
    given, variables, words = json.loads(out.read_text())
    assert msgspec.convert(given, Alert) == alert()
    assert words == ["an argument; $(with) signs"], "no shell looks at it"
    names = {name.removeprefix("VRAMSCOPE_FINDING_"): value for name, value in variables.items()}
    finding = make_finding()
    assert names == {
        "EVENT": "opened",
        "TEXT": alert().text,
        "ID": finding.id,
        "KIND": "leak",
        "SEVERITY": "high",
        "NODE": "node",
        "DEVICE": "0",
        "DEVICE_UUID": "GPU-a",
        "TITLE": finding.title,
        "ADVICE": finding.advice,
        "OPENED_S": "1760011200.000",
        "CLOSED_S": "",
        "IS_TEST": "",
    }


def test_no_text_of_an_alert_steers_what_shows_it() -> None:
    given = make_alert(Crossing("opened", poison(make_finding(), HOSTILE), "high"), "9.9")
    written = json.dumps([msgspec.to_builtins(given), make_variables(given)], ensure_ascii=False)
    assert not list_forbidden(written)
    assert "52;c;" in given.text
    assert "52;c;" in given.finding.node


def test_a_command_that_reads_nothing_is_no_failure(tmp_path: Path) -> None:
    note = tmp_path / "ran"
    deliver_to(command=script(tmp_path, f"open({str(note)!r}, 'w').write('to its end')\n"))
    assert note.read_text() == "to its end"


def test_a_command_that_fails_is_told_with_its_status_and_last_words(tmp_path: Path) -> None:
    text = "import sys\nsys.stderr.write('first\\nno such channel\\n')\nsys.exit(3)\n"
    told = reason_of(command=script(tmp_path, text))
    assert told == f"{PYTHON} ended with status 3: no such channel"


def test_a_command_that_is_not_there_is_told() -> None:
    told = reason_of(command=("/no/such/program",))
    assert told == "cannot run /no/such/program: No such file or directory"


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "child"
    # A shell is up at once, also where the machine is busy: the time that it gets runs from its start.
    told = reason_of(command=("/bin/sh", "-c", 'sleep 600 & echo $! >"$0"; wait', str(note)), timeout_s=2.0)
    assert told == "/bin/sh did not end within 2 s and was stopped"
    child = int(note.read_text())
    wait_until(lambda: _has_ended(child), what="the command's child to end")


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_command_that_leaves_something_behind_is_not_waited_for(tmp_path: Path) -> None:
    note = tmp_path / "child"
    text = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
    )
    try:
        deliver_to(command=script(tmp_path, text), timeout_s=60.0)
        assert not _has_ended(int(note.read_text())), "the delivery is over, and what it left behind goes on"
    finally:
        os.kill(int(note.read_text()), 9)


def test_texts_that_no_variable_can_hold_are_cleaned(tmp_path: Path) -> None:
    finding = msgspec.structs.replace(make_finding(), title="zero \0 and\nlines " + "x" * 10_000)
    out = tmp_path / "title"
    text = f"import os\nopen({str(out)!r}, 'w').write(os.environ['VRAMSCOPE_FINDING_TITLE'])\n"
    hook = Hook(command=script(tmp_path, text))
    deliver(DeliveryJob(hook, make_alert(Crossing("raised", finding, "high"), "9.9")))
    start = "zero � and lines "
    assert out.read_text() == start + "x" * (MAX_VARIABLE_CHARS - len(start))
