"""One POST to a webhook, with the standard library; its errors hold nothing of the address but its host."""

import base64
import http.client
import socket
import ssl
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request

from ..http_opener import make_opener

BUSY = (408, 425, 429)
"""Answers of a client's error that pass by themselves."""
MAX_ANSWER_BYTES = 4096


class WebhookError(Exception):
    """A webhook did not take the alert; the text goes on after its name."""

    def __init__(self, reason: str, *, may_pass: bool) -> None:
        super().__init__(reason)
        self.may_pass = may_pass
        """Whether trying again may help."""


def post(url: str, body: bytes, *, version: str, timeout_s: float) -> None:
    """Post JSON and return once it was taken.

    Args:
        url: Address, http or https; a user and password in it are sent as basic authentication.
        body: The JSON.
        version: Version of vramscope, told to the receiver.
        timeout_s: Seconds that connecting, sending and answering may each take.

    Raises:
        WebhookError: It was not taken.
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
        raise WebhookError("has an address that cannot be used", may_pass=False) from error


def _split_authorization(url: str) -> tuple[str, dict[str, str]]:
    """Return an address without user and password, and the header that says them."""
    parts = urlsplit(url)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))
    if parts.username is None:
        return bare, {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return bare, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _explain(reason: object) -> str:
    """Return what went wrong on the way, without the address."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"has a certificate that is not trusted: {reason.verify_message}"
    if isinstance(reason, socket.gaierror):
        return f"has a name that is not known: {reason.strerror}"
    if isinstance(reason, OSError) and reason.strerror:
        return f"cannot be reached: {reason.strerror}"
    return f"did not answer as a web server does ({type(reason).__name__})"
