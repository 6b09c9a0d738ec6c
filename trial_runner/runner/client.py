"""The runner's HTTP client of the manager: posts with the attempt's token, and waits between retries.

Python's own client is imported on first use: it is half the cost of a runner that does not need it.
"""

import json
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NoReturn, Optional, Tuple, Type

from trial_runner import protocol
from trial_runner.runner.settings import Credential
from trial_runner.wire.foreign_files import write_all

if TYPE_CHECKING:
    import http.client
    import ssl

#: Seconds before a request is repeated; the last value repeats.
RETRY_WAITS_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0)
#: Seconds for each step of a request, and for connecting if another channel is possible.
_TIMEOUT_S = 30.0
SHORT_CONNECT_S = 3.0
#: Size of a read, and maximum size of an answer; the manager's are far smaller.
_PIECE_BYTES = 16 * 1024
_MAX_PIECES = 4096
_COPY_BYTES = 256 * 1024
#: OpenSSL's flag, which the module names from Python 3.10 on.
_PARTIAL_CHAIN = 0x80000
_LONGEST_RETRY_AFTER_S = 600.0

Body = Dict[str, Any]
#: A route, and the body to post.
Post = Tuple[str, Body]
#: Called to get or raise what `Client.post` would.
Answer = Callable[[], Body]
#: Minimum fields of an answer, by route.
_FORMS: Dict[str, Tuple[Tuple[str, Type[object]], ...]] = {
    "version": (("accepted", bool),),
    "parameters": (("parameters", object),),
    "status": (("stop", bool),),
    "heartbeat": (("stop", bool),),
    "metrics": (("offset", int),),
    "log": (("offset", int),),
    protocol.TOGETHER: (("answers", list),),
}
#: Maximum bytes of posts in one request.
_MOST_TOGETHER = 256 * 1024
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Unavailable(Exception):
    """No answer now: no connection, or an answer that says try again or is not the manager's."""

    def __init__(self, sentence: str, retry_after: Optional[float] = None, status: int = 0) -> None:
        super().__init__(sentence)
        #: Seconds to wait, as requested by the manager.
        self.retry_after = retry_after
        #: Status of the answer; 0: no answer, or an incomplete one.
        self.status = status


class Denied(Unavailable):
    """The token is not valid here. `status`: 404 passes when the experiment is opened, 401 and 403 rarely do."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence, None, status)


class Refused(Exception):
    """A permanent refusal of this form: 400, 409, 413."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Fenced(Exception):
    """The attempt is closed: further reports do not count."""


class Client:
    """Requests can be repeated safely; all raise Unavailable, Refused and Fenced. `container`: empty: a process that
    only forwards logs.

    `authority`: certificates to trust in addition to the machine's own, PEM. Raises ValueError if it has none.
    `connect_s`: seconds for connecting.
    """

    def __init__(
        self,
        url: str,
        credential: Credential,
        container: str = "",
        authority: str = "",
        connect_s: float = _TIMEOUT_S,
    ) -> None:
        from http.client import HTTPException
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        self.address = parts.netloc
        self._path = parts.path
        self._credential = credential
        #: Expected header of the manager's answers: its name, and the attempt as in the path.
        self._signature = "/".join([credential.manager, *parts.path.split("/")[-3:]])
        self._container = container
        #: Prefix of the names of its requests; unique to this runner.
        self._prefix = os.urandom(8).hex()
        self._number = 0
        self._connection = _connection(parts.scheme, parts.netloc, authority, connect_s)
        #: Exceptions of a broken connection.
        self._breaks: Tuple[Type[Exception], ...] = (OSError, HTTPException)
        self._is_kept = False
        #: The manager accepts several posts in one request, according to its registration answer.
        self.takes_together = False

    def post(self, route: str, body: Body) -> Body:
        return self._exchange("POST", route, _encode(body).encode("utf-8", "replace"))

    def post_together(self, posts: List[Post]) -> List[Answer]:
        """The answers to the first of these posts, in one request; later ones were not carried out.

        Raises the refusal of the whole request: the fate of its posts is unknown then.
        """
        parts: List[str] = []
        for route, body in posts:
            part = _encode({"route": route, "body": body})
            if parts and sum(map(len, parts)) + len(part) > _MOST_TOGETHER:
                break
            parts.append(part)
        data = '{{"posts":[{}]}}'.format(",".join(parts)).encode("utf-8", "replace")
        told = self._exchange("POST", protocol.TOGETHER, data)["answers"]
        return [self._part(route, answer) for (route, _), answer in zip(posts[: len(parts)], told)]  # noqa: B905 - a refusal is the last answer

    def _part(self, route: str, told: Any) -> Answer:
        part = told if isinstance(told, dict) else {}
        status, answer = part.get("status"), part.get("body")

        def judged() -> Body:
            if status != 200:
                self._refuse(status if isinstance(status, int) else 0, answer, part.get("retryAfterS"))
            if not isinstance(answer, dict) or not _fits(answer, route):
                raise Unavailable("the manager at {} did not report the result of {}".format(self.address, route))
            return answer

        return judged

    def get(self, route: str) -> Body:
        return self._exchange("GET", route, None)

    def download(self, route: str, path: str) -> bool:
        """Writes the answer's body to a file; False, and no file, for an answer without a body. Raises the file's
        OSError."""
        response = self._respond("GET", route, None)
        if response.status == 204:
            self._read(response)
            return False
        with open(path, "wb") as file:
            self._copy(response, file.fileno())
        return True

    def close(self) -> None:
        self._connection.close()
        self._is_kept = False

    def _exchange(self, method: str, route: str, data: Optional[bytes]) -> Body:
        response = self._respond(method, route, data)
        answer = _object(self._read(response))
        if answer is None or not _fits(answer, route):
            raise self._foreign(response)
        return answer

    def _respond(self, method: str, route: str, data: Optional[bytes]) -> "http.client.HTTPResponse":
        """The response to an accepted request, with an unread body."""
        response = self._send(method, route, data)
        if response.getheader(protocol.ANSWER_HEADER) != "{}/{}".format(self._signature, self._request_name):
            raise self._foreign(response)
        if response.status not in (200, 204):
            self._fail(response)
        return response

    def _foreign(self, response: "http.client.HTTPResponse") -> Unavailable:
        """The error for an answer of a proxy, a firewall, a login page or another manager."""
        response.close()
        self.close()
        sentence = "the server at {} is not the manager of this attempt (it answered {} {})"
        return Unavailable(sentence.format(self.address, response.status, response.reason), None, response.status)

    def _send(self, method: str, route: str, data: Optional[bytes]) -> "http.client.HTTPResponse":
        """Whether to reconnect: the server may have closed an idle connection."""
        if self._is_kept:
            try:
                return self._request(method, route, data)
            except self._breaks:
                self.close()
        try:
            return self._request(method, route, data)
        except self._breaks as error:
            self._break(error)

    def _request(self, method: str, route: str, data: Optional[bytes]) -> "http.client.HTTPResponse":
        self._number += 1
        headers = {**self._credential.headers(), protocol.REQUEST_HEADER: self._request_name}
        if self._container:
            headers[protocol.CONTAINER_HEADER] = self._container
        if data is not None:
            headers["Content-Type"] = "application/json"
        self._connect()
        self._connection.request(method, "{}/{}".format(self._path, route), data, headers)
        response = self._connection.getresponse()
        self._is_kept = True
        return response

    @property
    def _request_name(self) -> str:
        """The name of the current request, which its answer repeats."""
        return "{}-{}".format(self._prefix, self._number)

    def _connect(self) -> None:
        """Connects unless connected. The time limit for connecting ends with this."""
        if self._connection.sock is None:
            self._connection.connect()
            connected: Any = self._connection.sock
            connected.settimeout(_TIMEOUT_S)

    def _read(self, response: "http.client.HTTPResponse") -> bytes:
        """The answer, read in pieces, as older Pythons allocate the requested size in advance."""
        pieces = [self._piece(response, _PIECE_BYTES)]
        while pieces[-1] and len(pieces) < _MAX_PIECES:
            pieces.append(self._piece(response, _PIECE_BYTES))
        if pieces[-1]:
            self.close()  # longer than any answer of the manager
        return b"".join(pieces)

    def _copy(self, response: "http.client.HTTPResponse", descriptor: int) -> None:
        expected, length = response.length, 0
        data = self._piece(response, _COPY_BYTES)
        while data:
            write_all(descriptor, data)
            length += len(data)
            data = self._piece(response, _COPY_BYTES)
        if expected is not None and length != expected:
            self._break(OSError("received only {} of {} bytes".format(length, expected)))

    def _piece(self, response: "http.client.HTTPResponse", size: int) -> bytes:
        try:
            return response.read(size)
        except self._breaks as error:
            self._break(error)

    def _break(self, error: Exception) -> NoReturn:
        self.close()
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unavailable("the manager at {} cannot be reached ({})".format(self.address, reason)) from error

    def _fail(self, response: "http.client.HTTPResponse") -> NoReturn:
        status, retry_after = response.status, response.getheader("Retry-After")
        told = _object(self._read(response)) or {}
        if not isinstance(told.get("error"), str):
            raise self._foreign(response)
        self._refuse(status, told, _seconds(retry_after))

    def _refuse(self, status: int, told: Any, retry_after_s: Any) -> NoReturn:
        """Raises the error of a refusal by the manager. `told`: the answer's body."""
        sentence = str(told.get("error")) if isinstance(told, dict) else "nothing"
        if status == 410:
            raise Fenced(sentence)
        if status in (400, 409, 413):
            raise Refused(sentence, status)
        text = "the manager at {} answered: {}".format(self.address, sentence)
        if status in (401, 403, 404):
            raise Denied(text, status)
        raise Unavailable(text, retry_after_s if isinstance(retry_after_s, (int, float)) else None, status)


def _connection(scheme: str, address: str, authority: str, connect_s: float) -> "http.client.HTTPConnection":
    import http.client

    if scheme == "https":
        return http.client.HTTPSConnection(address, timeout=connect_s, context=_context(authority))
    return http.client.HTTPConnection(address, timeout=connect_s)


def _context(authority: str) -> "ssl.SSLContext":
    """TLS that trusts the manager's authority, even if that is signed by another one."""
    import ssl

    context = ssl.create_default_context()
    if authority:
        context.verify_flags |= ssl.VerifyFlags(_PARTIAL_CHAIN)
        context.load_verify_locations(cadata=authority)
    return context


def _object(data: bytes) -> Optional[Body]:
    """The JSON object in an answer; None: another body."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _fits(answer: Body, route: str) -> bool:
    return all(_has(answer, name, kind) for name, kind in _FORMS.get(route, ()))


def _has(answer: Body, name: str, kind: Type[object]) -> bool:
    """Whether a value has a type: numbers and booleans are distinct; any value matches object."""
    value = answer.get(name)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number if kind is int else name in answer and isinstance(value, kind)


def _seconds(text: Optional[str]) -> Optional[float]:
    """Seconds in the header. A date, the other allowed form, is ignored: the default waits apply."""
    if text is None or not text.strip().isdigit():
        return None
    return min(float(text), _LONGEST_RETRY_AFTER_S)
