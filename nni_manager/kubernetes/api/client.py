"""Calls to a cluster's API, with plain JSON: kubernetes-asyncio connects and authenticates; its models are not used.

Parsing each watched object into models would cost more than all other processing.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from pydantic_core import from_json

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.kubernetes.api.access import Access, load
from nni_manager.platform_kit.secret_texts import SecretTexts

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient, Configuration

Object = dict[str, Any]
Query = Sequence[tuple[str, str]]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
#: Seconds to connect, and for a whole answer.
_CONNECT_S = 5.0
_ANSWER_S = 20.0
#: Read buffer in bytes; a watched object may exceed a megabyte.
_BUFFER = 2**21


#: The next step after a 403. Rights in a namespace are deleted with it.
NO_RIGHT = "ask an administrator for the right, or check whether the namespace was deleted"


class WrongAuthority(PlatformUnavailable):
    """The server's certificate is signed by another authority than the kubeconfig's; no request was sent."""


@dataclass(eq=False, kw_only=True)
class Refusal(Exception):
    """An unsuccessful answer of the API, with the fields of `Status` if it has them."""

    status: int
    #: ``AlreadyExists``, ``NotFound``, ``Forbidden``, …
    reason: str
    message: str

    @property
    def is_there(self) -> bool:
        """Whether an object of that name exists: 409 also means other conflicts, such as a quota's."""
        return self.status == 409 and self.reason == "AlreadyExists"

    def __str__(self) -> str:
        return f"{self.message or self.reason} ({self.status} {self.reason})".strip()


class Client:
    """A client of a cluster's API, created by `connect` and closed by `close`."""

    def __init__(self, api: ApiClient, fingerprint: str = "") -> None:
        self._api = api
        #: A hash of address and credentials: the same for clients that are interchangeable.
        self.fingerprint = fingerprint
        #: Answers that are still being received, such as watches.
        self._open: set[aiohttp.ClientResponse] = set()
        #: The token or login of the last call.
        self._shown: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        return str(self._api.configuration.host)

    async def close(self) -> None:
        """Closes the connections. Calls in progress raise PlatformUnavailable."""
        for answer in self._open:  # a closed connection alone does not wake their readers
            answer.content.set_exception(aiohttp.ServerDisconnectedError("the client was closed"))
        await self._api.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: object = None,
        content_type: str = JSON,
        limit_s: float = _ANSWER_S,
    ) -> Object:
        """The object in the API's answer. Raises Refusal, and PlatformUnavailable without an answer."""
        data = await self.read(method, path, query=query, body=body, content_type=content_type, limit_s=limit_s)
        try:
            answer = parsed(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise PlatformUnavailable(f"{self.host}{path} did not answer with a Kubernetes object")
        return answer

    async def read(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: object = None,
        content_type: str = JSON,
        limit_s: float = _ANSWER_S,
    ) -> bytes:
        """The bytes of the API's answer. Raises as `call`."""
        async with self._answer(method, path, query, body, content_type, limit_s) as answer:
            return await answer.read()

    @asynccontextmanager
    async def lines(self, path: str, query: Query, limit_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a streamed answer, for at most `limit_s`. Raises as `call`."""
        async with self._answer("GET", path, query, None, JSON, limit_s) as answer:
            self._open.add(answer)
            try:
                yield _lines(answer.content)
            finally:
                self._open.discard(answer)

    @asynccontextmanager
    async def websocket(self, path: str, query: Query, protocols: Sequence[str]) -> AsyncIterator[Any]:
        """An open websocket to a path of the API. Raises as `call`."""
        headers = await self._headers(JSON)
        address = self.host.replace("http", "ws", 1) + path + "?" + urlencode(query)
        session, settings = self._api.rest_client.pool_manager, self._api.rest_client
        try:
            async with session.ws_connect(
                address,
                headers=headers,
                protocols=protocols,
                heartbeat=30,
                max_msg_size=0,
                proxy=settings.proxy,
                proxy_headers=settings.proxy_headers,
                server_hostname=settings.server_hostname,
            ) as socket:
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            raise Refusal(status=error.status, reason=error.message, message="") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _unavailable(self.host, error) from None

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, query: Query, body: object, content_type: str, limit_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a request through the library's session, with its settings but without its own layer above."""
        settings = self._api.rest_client
        session: aiohttp.ClientSession = settings.pool_manager
        try:
            async with session.request(
                method,
                f"{self.host}{path}?{urlencode(query)}" if query else self.host + path,
                timeout=_limit(limit_s),
                headers=await self._headers(content_type),
                data=None if body is None else json.dumps(body).encode(),
                proxy=settings.proxy,
                proxy_headers=settings.proxy_headers,
                server_hostname=settings.server_hostname,
            ) as answer:
                if answer.status >= 300:
                    raise _refusal(answer, await answer.read(), SecretTexts(*self._shown, *_secrets_in(body)))
                yield answer
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(self.host, error) from None

    async def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": "application/json, */*", "Content-Type": content_type, "User-Agent": "nni-manager"}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"])
        self._shown = tuple(headers.get("authorization", headers.get("Authorization", "")).split()[-1:])
        return headers


@functools.cache
def _limit(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_S)


async def connect(access: Access) -> Client:
    """A client of a cluster, before its first call. Raises BadCredentials."""
    from kubernetes_asyncio.client import ApiClient

    with tempfile.TemporaryDirectory(prefix="nni-manager-kube-") as folder:
        settings = await load(access, Path(folder))
        fingerprint = await asyncio.to_thread(_fingerprint, settings)
        settings.connection_pool_maxsize = 0  # unlimited: one connection for each of hundreds of pods
        api = ApiClient(settings)
    _ignore_environment(api.rest_client, str(settings.host))
    return Client(api, fingerprint)


def _fingerprint(settings: Configuration) -> str:
    """A hash of address and credentials. Blocks on the files of certificates."""
    files = [settings.ssl_ca_cert, settings.cert_file, settings.key_file]
    contents = [hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else "" for path in files]
    address = [settings.host, settings.proxy, settings.verify_ssl, settings.tls_server_name]
    login = [sorted(settings.api_key.items()), settings.username, settings.password]
    return hashlib.sha256(repr([address, login, contents]).encode()).hexdigest()


def _ignore_environment(rest: Any, host: str) -> None:
    """Stops the library from searching for a proxy and a password in ~/.netrc at each call, which doubles the cost.

    The proxy is determined once. Passwords are never searched, as credentials come from the kubeconfig.
    """
    parts = urlsplit(host)
    rest.proxy = rest.proxy or (None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme))
    session: aiohttp.ClientSession = rest.pool_manager
    rest.pool_manager = aiohttp.ClientSession(
        connector=session.connector, read_bufsize=_BUFFER, cookie_jar=aiohttp.DummyCookieJar()
    )
    session.detach()


def parsed(data: bytes) -> Any:
    """Parsed JSON of the API. Raises ValueError.

    pydantic's parser takes half the time of the standard library's, and an informer parses ten events per trial. Unlike
    that one, it rejects lone surrogates and more than 200 levels.
    """
    try:
        return from_json(data, cache_strings="keys")
    except ValueError:
        return json.loads(data)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of an answer, of any length: an object may have a megabyte."""
    rest = bytearray()
    async for data in content.iter_any():
        rest += data
        *whole, last = rest.split(b"\n")
        for line in whole:
            yield bytes(line)
        rest = last


def _secrets_in(body: object) -> Iterator[str]:
    """The values of a Secret in a request, decoded and encoded: a refusal may repeat them."""
    if isinstance(body, dict) and body.get("kind") == "Secret":
        yield from map(str, (body.get("stringData") or {}).values())
        for value in (body.get("data") or {}).values():
            yield str(value)
            with suppress(ValueError):
                yield base64.b64decode(value).decode(errors="ignore")


def _redacted(value: Any, secrets: SecretTexts) -> Any:
    if isinstance(value, str):
        return secrets.redacted(value)
    if isinstance(value, list):
        return [_redacted(one, secrets) for one in value]
    return {name: _redacted(one, secrets) for name, one in value.items()} if isinstance(value, dict) else value


def _refusal(answer: aiohttp.ClientResponse, data: bytes, secrets: SecretTexts) -> Refusal:
    """The refusal, without secrets that the server or a webhook repeats in it."""
    try:
        status = json.loads(data)
    except ValueError:
        status = {}
    told = _redacted(status, secrets) if isinstance(status, dict) else {}
    return Refusal(
        status=answer.status,
        reason=str(told.get("reason") or answer.reason or ""),
        message=str(told.get("message") or secrets.shown(data.decode(errors="replace"))),
    )


def _unavailable(host: str, error: Exception) -> PlatformUnavailable:
    """The error for a call without an answer; `refused` if no connection was made, so that it had no effect."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        return WrongAuthority(
            f"{host}: its certificate is not signed by the kubeconfig's authority ({error}); "
            "check certificate-authority there",
            refused=True,
        )
    if isinstance(error, TimeoutError):
        is_refused = isinstance(error, aiohttp.ConnectionTimeoutError)
        return PlatformUnavailable(f"{host} does not answer", refused=is_refused)
    is_refused = isinstance(error, aiohttp.ClientConnectorError)
    return PlatformUnavailable(f"{host} is unreachable: {error or type(error).__name__}", refused=is_refused)
