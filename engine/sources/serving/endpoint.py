"""One server of models, read over HTTP within bounds of time and size."""

import http.client
from urllib.error import HTTPError, URLError
from urllib.request import Request

from ...errors import ServerUnreachableError
from ...http_opener import explain_failure, make_opener
from ...model.serving import ServerKind
from ...text import make_printable
from .answers import ALTERNATIVES, PAGES, Answer, read_answer, recognize_answer

ANSWERS_WITHIN_S = 1.0
# A page may take so long in all, however often a byte of it comes.
ENDS_WITHIN_S = 2.0
# The largest page that was seen of vLLM, with all histograms of 16 engines, has less than 1 MiB.
MOST_BYTES = 4 << 20


class ServerEndpoint:
    """Asks one address; use from one thread.

    Args:
        kind: What it is said to be; None to find out.
    """

    def __init__(self, url: str, kind: ServerKind | None = None) -> None:
        self.url = url
        self.kind = kind
        self._opener = make_opener(url, ends_within_s=ENDS_WITHIN_S)

    def read(self) -> Answer:
        """Return what the server says now.

        Raises:
            ServerUnreachableError: It does not answer, or with something else; the text says what.
        """
        if self.kind is None:
            self.kind = self._recognize()
        first, *others = PAGES[self.kind]
        bodies = {}
        try:
            bodies[first] = self._get(first)
        except ServerUnreachableError:
            if not others:
                raise
        for path in others:
            if bodies and self.kind in ALTERNATIVES:
                break
            try:
                bodies[path] = self._get(path)
            except ServerUnreachableError:
                if not bodies:
                    raise
        try:
            return read_answer(self.kind, bodies)
        except ServerUnreachableError as error:
            raise ServerUnreachableError(f"{self.url} {error}") from error

    def _recognize(self) -> ServerKind:
        failure: ServerUnreachableError | None = None
        for path in ("/metrics", "/slots", "/api/ps", "/prometheus/metrics"):
            try:
                body = self._get(path)
            except ServerUnreachableError as error:
                failure = failure or error
                continue
            kind = recognize_answer(path, body)
            if kind is not None:
                return kind
        raise failure or ServerUnreachableError(
            f"{self.url} answers, but not as vLLM, SGLang, TensorRT-LLM, llama.cpp, TGI or Ollama do"
        )

    def _get(self, path: str) -> bytes:
        request = Request(f"{self.url}{path}", headers={"Accept": "*/*"})  # noqa: S310 - http or https
        try:
            with self._opener.open(request, timeout=ANSWERS_WITHIN_S) as answer:
                data: bytes = answer.read(MOST_BYTES + 1)
        except HTTPError as error:
            with error:
                raise self._refuse(_explain_status(error.code, path)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise self._refuse(explain_failure(reason, ANSWERS_WITHIN_S, ENDS_WITHIN_S)) from None
        if len(data) > MOST_BYTES:
            raise self._refuse(f"answers {path} with more than {MOST_BYTES >> 20} MiB")
        return data

    def _refuse(self, reason: str) -> ServerUnreachableError:
        return ServerUnreachableError(make_printable(f"{self.url} {reason}"))


def _explain_status(code: int, path: str) -> str:
    if 300 <= code < 400:
        return f"points elsewhere from {path} ({code}); name the address it points to with --serving"
    hints = {
        404: "SGLang and llama.cpp serve it only with --enable-metrics and --metrics",
        401: "it asks for a password, which vramscope does not have",
        403: "it refuses us",
    }
    hint = f": {hints[code]}" if code in hints else ""
    return f"answers {path} with {code}{hint}"
