"""An account of a service with an HTTP API: one client, one rate limit and one health for all its experiments.

An adapter inherits `WebAccount` for its service, with one method per remote call, each a line of `ask`. A `WebLease` is
one training service's use of it: it checks the experiment's own credential first, switches to another one's if the
service refuses the credential in use, and gets new ones from `Platform.renew`. Errors of `ask`:

* `PlatformUnavailable`: no connection, no answer, 408, 429, 5xx, or an answer of a proxy. `refused`: the request
  certainly had no effect.
* `BadCredentials`: 401, or the service's other statuses for it (`credential_statuses`).
* `Refused`: the service refused the request. The adapter translates it.

After a 429 or 503 no call is sent before `Retry-After` is over, in either of its forms.
"""

from __future__ import annotations

import email.utils
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

from nni_manager.domain.clock import Clock, now_ms
from nni_manager.domain.errors import BadCredentials, PlatformError, PlatformUnavailable
from nni_manager.platform_kit.connections import Connection, Connections, Lease
from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.web_services import authorities
from nni_manager.web_services.pacing import Pacing

#: Seconds after which a service counts as not answering.
TIMEOUT_S = 20.0
#: Seconds that a call may wait for the rate limit; a longer wait raises PlatformUnavailable.
PATIENCE_S = 15.0
#: Seconds without calls after a 429 without `Retry-After`, and maximum after any.
_BACK_OFF_S = 10.0
_LONGEST_BACK_OFF_S = 3600.0
#: The next step after a self-signed certificate, or one signed by a private authority.
_OTHER_AUTHORITY = "; set SSL_CERT_FILE, for the manager, to a file with the certificates to trust"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Headers and parameters that authenticate requests. Secret: hidden in `repr`."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    params: Mapping[str, str] = field(default_factory=dict, repr=False)


class Refused(PlatformError):
    """A refusal of the service: its status, code and message. The adapter translates it."""

    def __init__(self, status: int, code: str, words: str) -> None:
        super().__init__(f"{status} {code}: {words}" if code else f"{status}: {words}")
        self.status = status
        self.code = code
        self.words = words


class WebAccount(Connection):
    """An account of a service with an HTTP API; to be inherited. `name`: of the service, for sentences; `paces`: kind
    of call → its rate limit; ``all`` counts every call.

    `transport`: for tests. Credentials are `Lease`'s opaque texts; `signature_of` turns one into a `Signature`.
    """

    #: Statuses that mean that the credential is refused.
    credential_statuses: Collection[int] = (401,)

    def __init__(
        self,
        key: str,
        *,
        name: str,
        base_url: str,
        paces: Mapping[str, Pacing],
        clock: Clock = now_ms,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(key, clock)
        self.name = name
        self.base_url = base_url
        self._paces = paces
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        #: Headers and parameters of requests.
        self.signature = Signature()
        #: Texts to remove from sentences of this account.
        self.secrets = SecretTexts()

    # Methods of a connection

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def check(self, credential: str) -> None:
        await self.try_out(await self.signature_of(credential))

    async def use(self, credential: str) -> None:
        self.signature = await self.signature_of(credential)

    # For adapters

    async def signature_of(self, credential: str) -> Signature:
        """The signature for requests with a credential. May call the service, for a token.

        Raises BadCredentials or PlatformUnavailable.
        """
        raise NotImplementedError

    async def try_out(self, signature: Signature) -> None:
        """Makes a call that needs credentials. Raises BadCredentials or PlatformUnavailable."""
        raise NotImplementedError

    async def signed_anew(self) -> bool:
        """Replaces a refused signature. True: there is a new one, and the refused call is repeated once."""
        return False

    def words(self, response: httpx.Response) -> tuple[str, str]:
        """The service's code and message in a refusal. Usually JSON with `code` and `message`."""
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return "", response.text
        return str(body.get("code") or ""), str(body.get("message") or body.get("error") or response.text)

    # Calls

    async def ask(
        self,
        method: str,
        path: str,
        *,
        pace: str = "",
        patience_s: float = PATIENCE_S,
        signature: Signature | None = None,
        params: Mapping[str, str] = {},
        headers: Mapping[str, str] = {},
        **body: Any,
    ) -> httpx.Response:
        """The response to a successful request. `path`: below the base; `body`: httpx's `json`, `content`, `data`.

        `signature`: to use instead of the current one; it is not replaced if it is refused.
        """
        await self._turn(pace, patience_s)
        used = self.signature if signature is None else signature
        response = await self._send(
            method, path, params={**params, **used.params}, headers={**headers, **used.headers}, **body
        )
        if response.status_code in self.credential_statuses and signature is None:
            if used is not self.signature or await self.signed_anew():  # another call may have renewed it
                options: dict[str, Any] = {"params": params, "headers": headers, **body}
                return await self.ask(method, path, pace=pace, signature=self.signature, **options)
        return self._judged(response, pace)

    async def ask_json(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of a response, as `ask`. Other responses come from a proxy: PlatformUnavailable."""
        response = await self.ask(method, path, **options)
        try:
            return response.json()
        except ValueError:
            raise self.away("did not answer with JSON; check the address") from None

    async def _turn(self, pace: str, patience_s: float) -> None:
        for name in dict.fromkeys((pace, "all")):
            if (pacing := self._paces.get(name)) is not None and not await pacing.turn_within(patience_s):
                raise self.away("is at its rate limit; retrying soon", refused=True)

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=TIMEOUT_S, transport=self._transport, trust_env=True, verify=authorities.trusted()
            )
        url = f"{self.base_url.rstrip('/')}/{path.lstrip('/')}"
        try:
            return await self._client.request(method, url, **options)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            shown = self._shown(error)
            fix = _OTHER_AUTHORITY if "CERTIFICATE_VERIFY_FAILED" in shown else ""
            raise self._note_down(f"cannot be reached ({shown}){fix}", refused=True) from None
        except httpx.TimeoutException:
            raise self._note_down(f"did not answer within {TIMEOUT_S:.0f} s", refused=False) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._note_down(f"broke off ({self._shown(error)})", refused=False) from None

    def _judged(self, response: httpx.Response, pace: str) -> httpx.Response:
        status = response.status_code
        if response.is_success:
            self.note_up()
            return response
        if status in (429, 503):
            told_s = retry_after_s(response.headers.get("Retry-After"), self._clock() / 1000)
            if told_s is not None or status == 429:
                self._back_off(pace, _BACK_OFF_S if told_s is None else told_s)
        if status == 429:
            raise self.away("demands fewer calls", refused=True)
        code, words = self.words(response)
        shown = self.secrets.shown(words)
        if status in self.credential_statuses:
            raise BadCredentials(f"{self.name} refuses the credentials ({status}): {shown}")
        if status == 408 or status >= 500:
            raise self._note_down(f"answered {status}: {shown}" if shown else f"answered {status}", refused=False)
        if status < 400:
            place = self.secrets.redacted(response.headers.get("Location", "somewhere else").partition("?")[0])
            raise self._note_down(f"redirects to {place}; check the address", refused=True)
        self.note_up()
        raise Refused(status, self.secrets.redacted(code), shown)

    def _back_off(self, pace: str, seconds: float) -> None:
        pacing = self._paces.get(pace) or self._paces.get("all")
        if pacing is not None:
            pacing.back_off(min(seconds, _LONGEST_BACK_OFF_S))

    def _note_down(self, what: str, *, refused: bool) -> PlatformUnavailable:
        error = self.away(what, refused=refused)
        self.note_down(str(error))
        return error

    def away(self, what: str, *, refused: bool = False) -> PlatformUnavailable:
        """An error to raise, with the sentence ``NAME WHAT``."""
        return PlatformUnavailable(f"{self.name} {what}", refused=refused)

    def _shown(self, error: Exception) -> str:
        return self.secrets.redacted(str(error)) or type(error).__name__


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Seconds in a Retry-After header: a number, or a date; None: invalid. `now_s`: since the epoch."""
    if value is None:
        return None
    try:
        return max(0.0, float(value)) if float(value) < float("inf") else None
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now_s)
    except (ValueError, OverflowError):
        return None


A = TypeVar("A", bound=Connection)
T = TypeVar("T")


class WebLease(Generic[A]):
    """One training service's use of an account; supports any `Connection`. An adapter may have several.

    `owner`: experiment and service.
    """

    def __init__(self, connections: Connections, key: str, owner: str, make: Callable[[], A], credential: str) -> None:
        self._connections = connections
        self._key = key
        self._owner = owner
        self._make = make
        self._credential = credential
        self._given: str | None = None
        self._has_moved = False
        self._lease: Lease[A] | None = None
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:  # without the credential
        return f"WebLease(key={self._key!r}, owner={self._owner!r})"

    async def enter(self) -> None:
        """Takes the lease, without any call."""
        self._given, self._has_moved, stack = None, False, AsyncExitStack()
        lease = self._connections.lease(self._key, self._owner, self._make, self._credential)
        self._lease = await stack.enter_async_context(lease)
        self._stack = stack

    async def enter_checked(self) -> None:
        """Takes the lease, after the credential was accepted. Raises BadCredentials and PlatformUnavailable."""
        await self.enter()
        try:
            assert self._lease is not None, "entered"
            await self._lease.use()
        except BaseException:
            await self.leave()
            raise

    async def leave(self) -> None:
        """Returns the lease. Idempotent."""
        self._lease = None
        await self._stack.aclose()

    async def _take_given(self) -> None:
        """Switches to the credential of `renew`.

        For another account, its lease is taken before the old one is returned; calls on the old one may fail then.
        """
        assert self._lease is not None, "entered"
        if self._has_moved:
            before = self._stack
            await self.enter()
            await before.aclose()
        elif self._given is not None:
            given, self._given = self._given, None
            await self._lease.renew(given)

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """A context in which the account is leased, even if it was not before: for `preflight` and `clean`."""
        if self._lease is not None:
            yield
            return
        await self.enter()
        try:
            yield
        finally:
            await self.leave()

    def renew(self, credential: str, key: str = "") -> None:
        """Sets another credential, for the next call. `key`: if it is for another account."""
        if key not in ("", self._key):
            self._key, self._has_moved = key, True
        if credential != self._credential or self._has_moved:
            self._credential = self._given = credential

    @property
    def connection(self) -> A:
        """The account, for calls without credentials. Only while entered."""
        assert self._lease is not None, "entered"
        return self._lease.connection

    async def call(self, ask: Callable[[A], Awaitable[T]]) -> T:
        """Calls `ask` with the account, after its credential was accepted. Raises the exceptions of `ask`."""
        assert self._lease is not None, "entered"
        await self._take_given()
        account = await self._lease.use()
        serving = self._lease.serving
        try:
            return await ask(account)
        except BadCredentials as error:
            if self._lease.serving is serving:  # otherwise a concurrent call has found a valid one
                await self._lease.refused(error)
            return await ask(self._lease.connection)


class _WithoutQuery(logging.Filter):
    """A filter that removes query and login from addresses in httpx's log: some services require passwords there."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                one.copy_with(query=None, username=None, password=None) if isinstance(one, httpx.URL) else one
                for one in record.args
            )
        return True


logging.getLogger("httpx").addFilter(_WithoutQuery())
