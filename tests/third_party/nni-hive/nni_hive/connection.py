"""One login and one pace for all experiments on an account of a Hive. Its calls, and what its refusals mean."""

from __future__ import annotations

from typing import Any

import httpx

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platform_kit.connections import Connection
from nni_manager.web_services.pacing import Pacing

#: Of an account, as the Hive's manual has it.
CALLS_PER_S = 20
_TIMEOUT_S = 20.0


class HiveConnection(Connection):
    """The credential is the account's token, which a login exchanges for a session."""

    def __init__(self, key: str, url: str, account: str) -> None:
        super().__init__(key)
        self._account = account
        self._client = httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S)
        self._pacing = Pacing(calls=CALLS_PER_S, per_s=1.0)
        self._credential = ""
        self._session = ""
        #: Jobs that the Hive would take, as far as it has said.
        self.free: int | None = None

    async def close(self) -> None:
        await self._client.aclose()

    async def check(self, credential: str) -> None:
        if credential != self._credential:
            await self._call("GET", "/v1/account", credential)

    async def use(self, credential: str) -> None:
        if credential == self._credential and self._session:
            return
        answer = await self._call("POST", "/v1/sessions", credential)
        self._credential, self._session = credential, answer.json()["session"]

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Answers with a status below 400, or 404, 409, 422 and 429, which mean something to the caller.

        Raises PlatformUnavailable and BadCredentials.
        """
        answer = await self._call(method, path, self._session, **options)
        if (free := answer.headers.get("Hive-Free")) is not None:
            self.free = int(free)
        return answer

    async def _call(self, method: str, path: str, secret: str, **options: Any) -> httpx.Response:
        await self._pacing.turn()
        headers = {"Authorization": f"Bearer {secret}", "Hive-Account": self._account}
        try:
            answer = await self._client.request(method, path, headers=headers, **options)
        except httpx.TransportError as error:
            sentence = f"the Hive cannot be reached: {error or type(error).__name__}"
            self.note_down(sentence)
            raise PlatformUnavailable(sentence, refused=isinstance(error, httpx.ConnectError)) from error
        if answer.status_code == 401 and secret == self._session:
            self._credential = self._session = ""  # it has run out: the next use logs in again
        return self._judged(answer)

    def _judged(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code in (401, 403):
            raise BadCredentials(f"the Hive refuses the token of account {self._account}; give another one")
        if answer.status_code == 503 and "Retry-After" in answer.headers:
            self._pacing.back_off(float(answer.headers["Retry-After"]))
        if answer.status_code >= 400 and answer.status_code not in (404, 409, 422, 429):
            self.note_down(sentence := f"the Hive answers {answer.status_code}")
            raise PlatformUnavailable(sentence)
        self.note_up()
        return answer
