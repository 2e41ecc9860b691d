"""The process that delivers one alert, which it reads from its standard input.

It is a process of its own because it looks up names, checks certificates and waits for programs, and the hub
may not wait for any of these. Its last line on stderr says why it failed; nothing secret is in it.
"""

import base64
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request

import msgspec

from ..http_opener import make_opener
from ..text import last_printable_line
from .payload import DeliveryJob, encode_alert, make_variables

MAX_REASON_CHARS = 300


class DeliveryError(Exception):
    """The alert did not arrive; the text says why in one sentence."""


def main() -> int:
    """Deliver the job on standard input; return 0, or 1 if it did not arrive."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=DeliveryJob)
    try:
        deliver(job)
    except DeliveryError as error:
        sys.stderr.write(f"{error}\n"[:MAX_REASON_CHARS])
        return 1
    return 0


def deliver(job: DeliveryJob) -> None:
    if job.hook.command is not None:
        _run_command(job, job.hook.command)
    else:
        _post(job)


def _run_command(job: DeliveryJob, command: tuple[str, ...]) -> None:
    """Run a command, and end it with all its children if it takes too long."""
    with _open_memory(encode_alert(job.alert, job.hook.format)) as given, _open_memory(b"") as said:
        try:
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, **make_variables(job.alert)},
                start_new_session=True,
            )
        except OSError as error:
            raise DeliveryError(f"cannot run {command[0]}: {error.strerror}") from error
        try:
            code = process.wait(job.hook.timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            late = f"did not end within {job.hook.timeout_s:g} s and was stopped"
            raise DeliveryError(f"{command[0]} {late}") from None
        if code != 0:
            size = os.lseek(said, 0, os.SEEK_END)
            last = last_printable_line(os.pread(said, MAX_REASON_CHARS, max(0, size - MAX_REASON_CHARS)))
            raise DeliveryError(f"{command[0]} ended with status {code}" + (f": {last}" if last else ""))


def _post(job: DeliveryJob) -> None:
    """Post to a webhook; a failure that may pass by itself is tried once more."""
    hook = job.hook
    body = encode_alert(job.alert, hook.format)
    for is_last in (False, True):
        try:
            with _at_most(hook.timeout_s):
                post(hook.url or "", body, version=job.alert.version, timeout_s=hook.timeout_s)
        except (WebhookError, TimeoutError) as error:
            may_pass = not isinstance(error, WebhookError) or error.may_pass
            if is_last or not may_pass:
                reason = str(error) or f"did not answer within {hook.timeout_s:g} s"
                raise DeliveryError(f"{hook.target} {reason}{', twice' if is_last else ''}") from error
            time.sleep(hook.retry_after_s)
        else:
            return


REPEATED_S = 0.5


@contextmanager
def _at_most(duration_s: float) -> Iterator[None]:
    """Raise TimeoutError when a block takes longer; a socket's own limit restarts with every byte."""

    def give_up(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    # Again and again: an exception is lost where it is raised inside a finalizer.
    signal.setitimer(signal.ITIMER_REAL, duration_s, REPEATED_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _open_memory(content: bytes) -> Iterator[int]:
    """Yield a file in memory with these bytes, to be read from its beginning."""
    descriptor = os.memfd_create("vramscope-alert")
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


# Client errors that pass by themselves.
BUSY = (408, 425, 429)
MAX_ANSWER_BYTES = 4096


class WebhookError(Exception):
    """A webhook did not accept the alert; the text continues after its name."""

    def __init__(self, reason: str, *, may_pass: bool) -> None:
        super().__init__(reason)
        # Trying again may help.
        self.may_pass = may_pass


def post(url: str, body: bytes, *, version: str, timeout_s: float) -> None:
    """Post JSON and return once it was accepted.

    Args:
        url: Address, http or https; a user and password in it are sent as basic authentication.
        version: Version of vramscope, for the receiver.
        timeout_s: Seconds that connecting, sending and answering may each take.

    Raises:
        WebhookError: It was not accepted.
        TimeoutError: There was no answer in time.
    """
    headers = {"Content-Type": "application/json", "User-Agent": f"vramscope/{version}"}
    try:
        address, authorization = _split_authorization(url)
        request = Request(address, data=body, headers=headers | authorization, method="POST")  # noqa: S310
        with make_opener(address).open(request, timeout=timeout_s) as answer:
            answer.read(MAX_ANSWER_BYTES)
    except HTTPError as error:
        error.close()
        may_pass = error.code >= 500 or error.code in BUSY
        hint = "; give the address it points to" if 300 <= error.code < 400 else ""
        raise WebhookError(f"answered {error.code} {error.reason}{hint}", may_pass=may_pass) from error
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise TimeoutError from error
        raise WebhookError(_explain(error.reason), may_pass=True) from error
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise WebhookError(_explain(error), may_pass=True) from error
    except ValueError as error:  # its text repeats the address
        raise WebhookError("has an invalid address", may_pass=False) from error


def _split_authorization(url: str) -> tuple[str, dict[str, str]]:
    """Return an address without user and password, and their header."""
    parts = urlsplit(url)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))
    if parts.username is None:
        return bare, {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return bare, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _explain(reason: object) -> str:
    """Describe what went wrong on the way, without the address."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"has an untrusted certificate: {reason.verify_message}"
    if isinstance(reason, socket.gaierror):
        return f"has an unknown host name: {reason.strerror}"
    if isinstance(reason, OSError) and reason.strerror:
        return f"cannot be reached: {reason.strerror}"
    return f"is not a web server ({type(reason).__name__})"


if __name__ == "__main__":
    sys.exit(main())
