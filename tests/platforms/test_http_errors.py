"""Adapters over HTTP: each answer and transport error of the service → class of the error and its sentence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import respx

from nni_manager.domain.errors import BadCredentials, PlatformError, PlatformUnavailable
from nni_manager.platforms.aml.account import AmlAccount
from nni_manager.platforms.aml.assets import Blobs
from nni_manager.platforms.dlts.account import DltsAccount
from nni_manager.platforms.openpai.account import OpenpaiAccount
from nni_manager.web_services.account import Refused

pytestmark = pytest.mark.unit

SECRET = "s3cr3t-t0ken"
FOREVER = float("-inf")


class Tokens:
    """In the place of azure-identity."""

    async def token(self, scope: str) -> str:
        return SECRET

    async def renew(self) -> None:
        """The next token is the same."""

    async def close(self) -> None:
        """Nothing is open."""


def aml() -> AmlAccount:
    return AmlAccount("aml:w", endpoint="http://azure", resource="/w", tokens=Tokens())


#: Account → its making, its credential.
ACCOUNTS: dict[str, tuple[Callable[[], Any], str]] = {
    "openpai": (lambda: OpenpaiAccount("http://pai", "alice"), json.dumps({"token": SECRET})),
    "dlts": (lambda: DltsAccount("http://dlts/", "c", "team", "a@b"), SECRET),
    "aml": (aml, ""),
}


@asynccontextmanager
async def answered(platform: str, answer: httpx.Response | type[httpx.HTTPError]) -> AsyncIterator[Any]:
    """The account of a service that answers every call so, or fails so."""
    make, credential = ACCOUNTS[platform]
    account = make()
    with respx.mock() as router:
        failure = answer("gone") if isinstance(answer, type) else None
        route = router.route()
        route.mock(side_effect=failure) if failure else route.mock(return_value=answer)
        await account.use(credential)
        try:
            yield account
        finally:
            await account.close()


def said(status: int, **body: Any) -> httpx.Response:
    return httpx.Response(status, json=body)


#: Answer → the error of any call: its class, `refused` of PlatformUnavailable, words of its sentence.
ANSWERS: list[tuple[httpx.Response | type[httpx.HTTPError], type[PlatformError], bool | None, str]] = [
    (httpx.ConnectError, PlatformUnavailable, True, "cannot be reached (gone)"),
    (httpx.ConnectTimeout, PlatformUnavailable, True, "cannot be reached (gone)"),
    (httpx.PoolTimeout, PlatformUnavailable, True, "cannot be reached (gone)"),
    (httpx.ReadTimeout, PlatformUnavailable, False, "did not answer within 20 s"),
    (httpx.WriteTimeout, PlatformUnavailable, False, "did not answer within 20 s"),
    (httpx.ReadError, PlatformUnavailable, False, "broke off (gone)"),
    (httpx.RemoteProtocolError, PlatformUnavailable, False, "broke off (gone)"),
    (
        httpx.Response(302, headers={"Location": "http://login/?x=1"}),
        PlatformUnavailable,
        True,
        "redirects to http://login/;",
    ),
    (said(401, message="expired"), BadCredentials, None, "refuses the credentials (401): "),
    (said(408, message="slow"), PlatformUnavailable, False, "answered 408: "),
    (said(429), PlatformUnavailable, True, "demands fewer calls"),
    (said(500, message=f"no {SECRET}"), PlatformUnavailable, False, "answered 500: "),
    (httpx.Response(502), PlatformUnavailable, False, "answered 502"),
    (httpx.Response(503, headers={"Retry-After": "1"}), PlatformUnavailable, False, "answered 503"),
    (
        httpx.Response(200, text="<html>login</html>"),
        PlatformUnavailable,
        False,
        "did not answer with JSON; check the address",
    ),
]


@pytest.mark.parametrize("platform", ACCOUNTS)
@pytest.mark.parametrize(("answer", "kind", "refused", "words"), ANSWERS)
async def test_answer_becomes_error(
    platform: str,
    answer: httpx.Response | type[httpx.HTTPError],
    kind: type[PlatformError],
    refused: bool | None,
    words: str,
) -> None:
    async with answered(platform, answer) as account:
        with pytest.raises(kind) as raised:
            await account.ask_json("GET", "jobs")
    assert words in str(raised.value) and SECRET not in str(raised.value)
    assert str(raised.value).startswith(account.name)
    assert refused is None or getattr(raised.value, "refused", None) is refused


Call = Callable[[Any], Awaitable[Any]]

#: Platform, answer, call → class of the error, its sentence.
REFUSALS: list[tuple[str, httpx.Response, Call, type[PlatformError], str]] = [
    (
        "openpai",
        said(403, message="not yours"),
        lambda one: one.check(json.dumps({"token": SECRET})),
        BadCredentials,
        "OpenPAI at http://pai refuses the credentials of alice: not yours",
    ),
    (
        "openpai",
        said(400, message="no match"),
        lambda one: one.check(json.dumps({"password": "p4ssword"})),
        BadCredentials,
        "OpenPAI at http://pai refuses the password of alice: no match",
    ),
    (
        "openpai",
        said(200),
        lambda one: one.check(json.dumps({"password": "p4ssword"})),
        PlatformUnavailable,
        "OpenPAI at http://pai answered a login without a token",
    ),
    (
        "openpai",
        said(409, code="ConflictJobError", message="it exists"),
        lambda one: one.submit({"name": "x"}),
        Refused,
        "409 ConflictJobError: it exists",
    ),
    (
        "openpai",
        said(403, code="ForbiddenUserError", message="no"),
        lambda one: one.stop("x"),
        PlatformUnavailable,
        "OpenPAI unexpectedly refused a request: 403 ForbiddenUserError: no",
    ),
    (
        "openpai",
        said(403, message="no"),
        lambda one: one.detail("x"),
        PlatformUnavailable,
        "OpenPAI unexpectedly refused a request: 403: no",
    ),
    (
        "openpai",
        said(200, data="none"),
        lambda one: one.jobs(FOREVER),
        PlatformUnavailable,
        "OpenPAI at http://pai did not answer with a list of jobs",
    ),
    (
        "dlts",
        said(403, message="not in it"),
        lambda one: one.teams(),
        BadCredentials,
        "DLWorkspace at http://dlts/ refuses the credentials (403): not in it",
    ),
    (
        "dlts",
        said(400, message="odd"),
        lambda one: one.status("x"),
        PlatformUnavailable,
        "DLWorkspace at http://dlts/ unexpectedly refused a query: 400: odd",
    ),
    (
        "dlts",
        said(400, message="odd"),
        lambda one: one.kill(["x"]),
        PlatformUnavailable,
        "DLWorkspace at http://dlts/ unexpectedly refused a kill: 400: odd",
    ),
    (
        "dlts",
        said(200, error="down"),
        lambda one: one.jobs(FOREVER),
        PlatformUnavailable,
        "DLWorkspace at http://dlts/ did not answer with a list of jobs",
    ),
    (
        "aml",
        said(403, error={"code": "AuthorizationFailed", "message": "no right"}),
        lambda one: one.check(""),
        BadCredentials,
        "Azure ML: no right; check subscriptionId, resourceGroup and workspaceName, and your rights there",
    ),
    (
        "aml",
        said(403, error={"code": "AuthorizationFailed", "message": "no right"}),
        lambda one: one.get("jobs/x"),
        Refused,
        "403 AuthorizationFailed: no right",
    ),
    (
        "aml",
        said(409, error={"code": "Conflict", "message": "it exists"}),
        lambda one: one.put("jobs/x", {}),
        Refused,
        "409 Conflict: it exists",
    ),
]


@pytest.mark.parametrize(("platform", "answer", "call", "kind", "sentence"), REFUSALS)
async def test_refusal_of_a_call(
    platform: str, answer: httpx.Response, call: Call, kind: type[PlatformError], sentence: str
) -> None:
    async with answered(platform, answer) as account:
        with pytest.raises(kind) as raised:
            await call(account)
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("platform", "call"),
    [
        ("openpai", lambda one: one.config("x")),
        ("openpai", lambda one: one.detail("x")),
        ("openpai", lambda one: one.stop("x")),
        ("dlts", lambda one: one.status("x")),
        ("dlts", lambda one: one.kill(["x"])),
        ("aml", lambda one: one.get("jobs/x")),
    ],
)
async def test_missing_job_is_none(platform: str, call: Call) -> None:
    async with answered(platform, said(404, code="NoJobError", message="no such job")) as account:
        assert await call(account) is None


async def test_dlts_tells_a_refused_job_in_an_answer_with_status_200() -> None:
    async with answered("dlts", said(200, error=f"no quota for {SECRET}")) as account:
        assert await account.submit({}) == "no quota for ***"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (httpx.ConnectError, "the workspace's storage is unreachable (ConnectError)"),
        (httpx.ReadTimeout, "the workspace's storage is unreachable (ReadTimeout)"),
        (
            httpx.Response(403, text=SECRET),
            "the workspace's storage answered 403: assign yourself the role Storage Blob Data Contributor",
        ),
        (httpx.Response(500, text=f"key {SECRET}"), "the workspace's storage answered 500: key ***"),
        (httpx.Response(200, text="{}"), "the workspace's storage did not answer with a list of blobs"),
    ],
)
async def test_storage_of_a_workspace(answer: httpx.Response | type[httpx.HTTPError], sentence: str) -> None:
    blobs = Blobs("http://there/c", Tokens())
    with respx.mock() as router:
        failure = answer("gone") if isinstance(answer, type) else None
        route = router.route()
        route.mock(side_effect=failure) if failure else route.mock(return_value=answer)
        with pytest.raises(PlatformUnavailable) as raised:
            await blobs.sizes("x")
    await blobs.close()
    assert str(raised.value) == sentence


@pytest.mark.parametrize("status", [404, 416])
async def test_missing_blob_and_end_of_a_blob_are_empty(status: int) -> None:
    blobs = Blobs("http://there/c", Tokens())
    with respx.mock() as router:
        router.route().mock(return_value=httpx.Response(status))
        assert await blobs.read("x", 0, 10) == b""
    await blobs.close()
