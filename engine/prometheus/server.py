"""A Prometheus server: its address, and its answers to queries, with the standard library alone."""

import base64
import http.client
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit
from urllib.request import Request

import msgspec

from ..errors import ServerUnreachableError, UsageError
from ..http_opener import explain_failure, make_opener
from ..soundness import make_json_decoder
from ..text import clean_texts, make_printable

ANSWERS_WITHIN_S = 10.0
ENDS_WITHIN_S = 30.0
MAX_ANSWER_BYTES = 64 << 20
# Characters quoted from a server's own words.
MAX_SHOWN = 80
# Values read of one answer; the series after them are left out.
MOST_VALUES = 1_000_000
# A series with a longer name or label is not of a device.
MAX_LABEL_CHARACTERS = 1000
# What decoding hostile bytes may raise.
_MALFORMED = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


class Series(msgspec.Struct, frozen=True):
    # Name and labels; the key of the name is `__name__`.
    metric: dict[str, str]
    # Time in seconds since the epoch, and value.
    values: tuple[tuple[float, str], ...] = ()
    # Value of an instant query.
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: Literal["vector", "matrix", "scalar", "string"]
    result: msgspec.Raw


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: Literal["success", "error"]
    data: _Data | None = None
    error: str = ""


_SERIES = make_json_decoder(Series)


class ServerAddress(NamedTuple):
    """The credentials are never part of a text."""

    # Without user, password and a slash at the end.
    url: str
    # HTTP header.
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"ServerAddress({self.url!r})"


def parse_server_url(text: str, credentials: str | None = None) -> ServerAddress:
    """Parse the address of a server.

    Args:
        text: Its address, http or https, with the path below which its API is; may have user and password.
        credentials: `user:password`, if the address has none.

    Raises:
        UsageError: It is no such address; the text does not repeat it if it has a password.
    """
    expected = "expected one such as http://prometheus.example.org:9090"
    try:
        parts = urlsplit(text)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        shown = "" if "@" in text else f" {text}"
        raise UsageError(f"--from-prometheus{shown}: not a server address; {expected}")
    host = parts.netloc.rpartition("@")[2]
    if parts.username is not None:
        if credentials is not None:
            raise UsageError(
                "--from-prometheus: the address contains a user; leave out --auth-file, or the user"
            )
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    header = None
    if credentials is not None:
        header = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return ServerAddress(url, header)


class PrometheusServer:
    """Asks a server; use from one thread.

    Args:
        timeout_s: Seconds that connecting and each part of an answer may take.
        ends_within_s: Seconds that a request may take in all: a byte now and then does not prolong it.
    """

    def __init__(
        self,
        address: ServerAddress,
        *,
        timeout_s: float = ANSWERS_WITHIN_S,
        ends_within_s: float = ENDS_WITHIN_S,
    ) -> None:
        self._ends_within_s = ends_within_s
        self.url = address.url
        self._timeout_s = timeout_s
        # Whole seconds of the server's own clock; None where the answer has no date.
        self.answered_wall_s: float | None = None
        # Series of the newest answer that were not read: beyond `MOST_VALUES`, or with endless
        # labels.
        self.series_left_out = 0
        self._headers = {"Accept": "application/json"}
        if address.authorization is not None:
            self._headers["Authorization"] = address.authorization
        self._opener = make_opener(address.url, ends_within_s=ends_within_s)

    def query(self, expression: str, *, at_s: float | None = None) -> list[Series]:
        """Return the series of an expression as of a moment.

        Args:
            at_s: The moment in seconds since the epoch; None for now.

        Raises:
            ServerUnreachableError: The server did not answer, or not as Prometheus does.
        """
        moment = {} if at_s is None else {"time": f"{at_s:.3f}"}
        return self._ask("query", {"query": expression, **moment})

    def query_range(self, expression: str, start_s: float, end_s: float, step_s: float) -> list[Series]:
        """Return the series of an expression at even moments of a span; raises as `query`."""
        span = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        return self._ask("query_range", {"query": expression, **span})

    def _ask(self, path: str, parameters: dict[str, str]) -> list[Series]:
        address = f"{self.url}/api/v1/{path}?{urlencode(parameters)}"
        request = Request(address, headers=self._headers)  # noqa: S310 - http or https, as was checked
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                self._note_date(answer.headers.get("Date"))
                kind = answer.headers.get("Content-Type") or "no content type"
                data = answer.read(MAX_ANSWER_BYTES + 1)
        except HTTPError as error:
            with error:
                raise self._refuse(_explain_status(error)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise self._refuse(explain_failure(reason, self._timeout_s, self._ends_within_s)) from None
        return self._decode(data, kind)

    def _decode(self, data: bytes, kind: str) -> list[Series]:
        if len(data) > MAX_ANSWER_BYTES:
            raise self._refuse(f"answered with more than {MAX_ANSWER_BYTES >> 20} MiB; ask for fewer nodes")
        try:
            answer = msgspec.json.decode(data, type=_Answer)
            if answer.status == "error" or answer.data is None:
                raise self._refuse(f"answered with an error: {answer.error[:300] or 'no message'}")
            return self._read_series(msgspec.json.decode(answer.data.result, type=list[msgspec.Raw]))
        except _MALFORMED:
            received = f"it sent {len(data):,} bytes of {kind[:MAX_SHOWN]}"
            raise self._refuse(f"is not a Prometheus API ({received}); check the address") from None

    def _read_series(self, found: list[msgspec.Raw]) -> list[Series]:
        """Return the series of an answer, one by one: a large answer must not block every other thread."""
        series: list[Series] = []
        values = self.series_left_out = 0
        for at, raw in enumerate(found):
            if values >= MOST_VALUES:
                self.series_left_out += len(found) - at
                break
            each = _SERIES.decode(raw)
            values += len(each.values)
            if all(len(it) <= MAX_LABEL_CHARACTERS for it in each.metric.values()):
                series.append(clean_texts(each))
            else:
                self.series_left_out += 1
        return series

    def _note_date(self, date: str | None) -> None:
        try:
            self.answered_wall_s = None if date is None else parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError, TypeError):
            self.answered_wall_s = None

    def _refuse(self, reason: str) -> ServerUnreachableError:
        return ServerUnreachableError(make_printable(f"{self.url} {reason}"))


def _explain_status(error: HTTPError) -> str:
    if error.code in (401, 403):
        return (
            f"refuses: {error.code} {error.reason}; give user and password with --auth-file FILE, or in the "
            "address"
        )
    if 300 <= error.code < 400:
        return f"points elsewhere: {error.code} {error.reason}; give the address it points to"
    message = ""
    with suppress(OSError, http.client.HTTPException, *_MALFORMED):
        message = msgspec.json.decode(error.read(4096), type=_Answer).error[:300]
    hint = message or ("check that it is a Prometheus and its path is right" if error.code == 404 else "")
    return f"answered {error.code} {error.reason}" + (f": {hint}" if hint else "")
