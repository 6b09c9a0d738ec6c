"""The routes of trial runners: access, accepted posts, refusals."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.api.access.guard import ADMIT
from nni_manager.api.runners import trial_listener
from nni_manager.api.runners.trial_listener import BODY_LIMIT, TrialListener
from nni_manager.api.runners.trial_posts import MOST_BODIES, SMALL_BYTES, BodyMemory
from nni_manager.domain.errors import TooBusy
from nni_manager.scheduler.experiments.runner_reports import RunnerIdentity
from tests.scheduler.runner_world import OUTBOX, RunnerWorld, lines_of, make_runner_world
from trial_runner import protocol

pytestmark = [pytest.mark.unit, pytest.mark.timeout(20)]

VERSION = {"version": protocol.VERSION, "python": "3.7.1", "host": "node7", "pid": 7, "channel": "push"}
EXIT_0 = {"event": "exited", "exitCode": 0, "signal": None, "stderrTail": "", "outboxes": {}}
POSTS: dict[str, dict[str, Any]] = {
    "version": VERSION,
    "status": {"event": "started", "pid": 7, "startedMs": 5},
    "metrics": {"outbox": OUTBOX, "start": 0, "end": 3, "lines": ["{}"]},
    "log": {"file": "stdout", "offset": 0, "data": "x"},
    "heartbeat": {"reporter": True},
}
GETS = ["parameters", "code", "outboxes"]


class Runner:
    """Speaks to the listener as one attempt; `token` may be another's."""

    def __init__(self, world: RunnerWorld, application: ASGIApp, who: RunnerIdentity, token: str | None = None) -> None:
        self.token = world.reports.tokens.token(who.job_name) if token is None else token
        transport = httpx.ASGITransport(cast(Any, application))
        self.client = httpx.AsyncClient(
            transport=transport,
            headers={"Authorization": f"Bearer {self.token}"} if self.token else {},
            base_url=f"http://manager:8081/trial/v1/{who.experiment_id}/{who.trial_id}/{who.attempt}/",
        )

    async def post(self, route: str, body: object = None) -> httpx.Response:
        return await self.client.post(route, json=POSTS[route] if body is None else body)

    async def get(self, route: str) -> httpx.Response:
        return await self.client.get(route)

    async def any(self, route: str) -> httpx.Response:
        return await (self.post(route) if route in POSTS else self.get(route))


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunnerWorld]:
    async with make_runner_world(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def application(world: RunnerWorld) -> ASGIApp:
    return TrialListener(world.reports)


@pytest.fixture
async def runner(world: RunnerWorld, application: ASGIApp) -> Runner:
    return Runner(world, application, world.runner)


async def test_runner_with_its_token_is_admitted(world: RunnerWorld, application: ASGIApp) -> None:
    admitted: list[str] = []

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        state = {ADMIT: admitted.append}
        await application({**scope, "state": state}, receive, send)

    assert (await Runner(world, told, world.runner, "wrong").post("version")).status_code == 403
    assert admitted == []
    assert (await Runner(world, told, world.runner).post("version")).status_code == 200
    assert admitted == [world.runner.job_name]


async def test_the_life_of_a_runner(runner: Runner, world: RunnerWorld) -> None:
    answer = await runner.post("version")
    parameters = (await runner.get("parameters")).json()
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "accepted": True,
            "managerVersion": protocol.VERSION,
            "record": parameters,
            "hasCode": True,
            "stored": {},
            "together": True,
            "stop": False,
        },
    )
    assert parameters["parameters"] == {"x": 0.5} and parameters["parameter_source"] == "customized"
    inline = (await runner.post("version", {**VERSION, "inlineCode": True})).json()["inlineCode"]
    code = await runner.get("code")
    assert base64.b64decode(inline) == code.content
    assert (code.headers["content-type"], code.content[:2]) == ("application/gzip", b"\x1f\x8b")
    assert (await runner.post("status")).json() == {"stop": False, "graceS": 5.0, "everyS": 5}
    lines, size = lines_of(0.25)
    body = {"outbox": OUTBOX, "start": 0, "end": size, "lines": lines}
    assert (await runner.post("metrics", body)).json() == {"offset": size}
    assert (await runner.get("outboxes")).json() == {OUTBOX: size}
    log = {"file": "trial.log", "offset": 0, "data": "ü\n", "source": ""}
    assert (await runner.post("log", log)).json() == {"offset": 3}
    assert (await runner.post("heartbeat")).json() == {"stop": False, "graceS": 5.0, "everyS": 5}
    assert (await runner.post("status", {**EXIT_0, "outboxes": {OUTBOX: size}})).json()["stop"] is False
    assert (await world.ended())["status"] == "SUCCEEDED"


# ------------------------------------------------------------------------------------------------ several in one


def part(route: str, **body: object) -> dict[str, object]:
    return {"route": route, "body": body}


async def test_a_whole_end_in_one_request(runner: Runner, world: RunnerWorld) -> None:
    await runner.post("version")
    lines, size = lines_of(0.25)
    posts = [
        part("metrics", outbox=OUTBOX, start=0, end=size, lines=lines),
        part("status", **{**EXIT_0, "outboxes": {OUTBOX: size}}),
        part("log", file="stdout", offset=0, data="out\n"),
        part("log", file="stderr", offset=0, data="err\n"),
    ]
    answers = (await runner.post("together", {"posts": posts})).json()["answers"]
    assert [answer["status"] for answer in answers] == [200] * 4
    assert [answer["body"].get("offset") for answer in answers] == [size, None, 4, 4]
    assert (await world.ended())["status"] == "SUCCEEDED"
    assert (world.folder() / "stdout").read_text() == "out\n"
    again = (await runner.post("together", {"posts": posts})).json()["answers"]
    assert [answer["status"] for answer in again] == [410], "decided: nothing after it is taken"
    assert (await runner.post("together", {"posts": posts[2:]})).json()["answers"][0]["status"] == 200, "logs are"


async def test_an_end_is_not_taken_without_the_results_before_it(runner: Runner, world: RunnerWorld) -> None:
    await runner.post("version")
    lines, size = lines_of(0.25)
    gap = part("metrics", outbox=OUTBOX, start=9, end=9 + size, lines=lines)
    refused = part("metrics", outbox="elsewhere", start=0, end=size, lines=lines)
    for first, status in ((gap, 200), (refused, 400)):
        answers = (await runner.post("together", {"posts": [first, part("status", **EXIT_0)]})).json()["answers"]
        assert [answer["status"] for answer in answers] == [status]
    assert (await world.trial())["attempts"][0]["runnerExit"] is None


async def test_an_end_that_cannot_be_used_costs_no_results(runner: Runner, world: RunnerWorld) -> None:
    await runner.post("version")
    lines, size = lines_of(0.25)
    results = part("metrics", outbox=OUTBOX, start=0, end=size, lines=lines)
    answers = (await runner.post("together", {"posts": [results, part("status", event="exited")]})).json()["answers"]
    assert [answer["status"] for answer in answers] == [200, 400]
    assert (await runner.get("outboxes")).json() == {OUTBOX: size}


@pytest.mark.parametrize(
    "posts",
    [None, [], [7], [{}], [part("version")], [part("together")], [{"route": "log"}], [part("heartbeat")] * 17],
    ids=str,
)
async def test_invalid_list_of_posts(runner: Runner, posts: object) -> None:
    await runner.post("version")
    answer = await runner.post("together", {"posts": posts})
    assert answer.status_code == 400 and answer.json()["error"].startswith("posts: ")


# ------------------------------------------------------------------------------------------------ access


@pytest.mark.parametrize("route", [*POSTS, *GETS])
async def test_the_token_of_another_attempt(world: RunnerWorld, application: ASGIApp, route: str) -> None:
    other = await world.add_trial()
    token = world.reports.tokens.token(other.job_name)
    answer = await Runner(world, application, world.runner, token).any(route)
    assert (answer.status_code, answer.json()) == (403, {"error": "this token belongs to another attempt"})
    later = RunnerIdentity(experiment_id=world.id, trial_id=world.runner.trial_id, attempt=2)
    answer = await Runner(world, application, later, world.reports.tokens.token(world.runner.job_name)).any(route)
    assert answer.status_code == 403
    assert (await world.trial())["attempts"][0]["runnerVersion"] is None, "nothing was taken"


@pytest.mark.parametrize("route", [*POSTS, *GETS])
@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic dTpw", "Token x"])
async def test_no_token(world: RunnerWorld, application: ASGIApp, route: str, header: str | None) -> None:
    runner = Runner(world, application, world.runner, "")
    if header is not None:
        runner.client.headers["Authorization"] = header
    answer = await runner.any(route)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json() == {"error": "send the attempt's token as `Authorization: Bearer`"}


@pytest.mark.parametrize(
    "path",
    [
        "k3v9x0qa/../1",
        "a%2Fb/aaaaa/1",
        "exp/aaaaa/0",
        "exp/aaaaa/-1",
        "exp/aaaaa/01",
        "exp/aaaaa/1.0",
        "exp/aaaaa/²",
        f"exp/aaaaa/{'9' * 5000}",
        "exp/aaaaa/one",
        "exp/a/1",
        "exp/äääää/1",
        f"{'e' * 99}/aaaaa/1",
    ],
)
async def test_malformed_attempt_is_answered_like_an_unknown_one(
    world: RunnerWorld, application: ASGIApp, path: str
) -> None:
    runner = Runner(world, application, world.runner)
    answer = await runner.client.get(f"http://manager/trial/v1/{path}/parameters")
    assert answer.status_code in (403, 404)


async def test_valid_token_of_unknown_attempt(world: RunnerWorld, application: ASGIApp) -> None:
    for who in (
        RunnerIdentity(experiment_id="nobody", trial_id="aaaaa", attempt=1),
        RunnerIdentity(experiment_id=world.id, trial_id="zzzzz", attempt=1),
    ):
        assert (await Runner(world, application, who).any("parameters")).status_code == 404


async def test_a_decided_attempt(runner: Runner, world: RunnerWorld) -> None:
    await runner.post("version")
    await runner.post("status", EXIT_0)
    await world.ended()
    for route in [*POSTS, *GETS]:
        if route == "log":
            continue
        answer = await runner.any(route)
        assert answer.status_code == 410 and "is closed; no further reports are accepted" in answer.json()["error"]


@pytest.mark.parametrize("route", ["version", *[route for route in POSTS if route != "version"], "parameters", "code"])
async def test_a_version_that_does_not_fit(runner: Runner, route: str) -> None:
    """Whether the version is given or not, no other post is accepted then."""
    answer = await (runner.post(route, {"version": "0.5.1"}) if route == "version" else runner.any(route))
    assert answer.status_code == 409
    assert ("version 0.5.1" if route == "version" else "no version") in answer.json()["error"]
    assert f"this manager is {protocol.VERSION}" in answer.json()["error"]


# ------------------------------------------------------------------------------------------------ accepted posts


@pytest.mark.parametrize(
    ("route", "body", "field"),
    [
        ("version", [], "body"),
        ("version", "text", "body"),
        ("version", {"version": 6}, "version"),
        ("version", {"version": "9" * 65}, "version"),
        ("version", {"version": "0.6\n"}, "version"),
        ("version", {**VERSION, "channel": "keeper"}, "channel"),
        ("status", {}, "event"),
        ("status", {"event": ["started"]}, "event"),
        ("status", {"event": "started", "startedMs": "now"}, "startedMs"),
        ("status", {"event": "started", "startedMs": -1}, "startedMs"),
        ("status", {"event": "started", "startedMs": 2**63}, "startedMs"),
        ("status", {"event": "started", "startedMs": True}, "startedMs"),
        ("status", {"event": "exited"}, "exitCode or signal"),
        ("status", {**EXIT_0, "exitCode": 0.5}, "exitCode"),
        ("status", {**EXIT_0, "exitCode": 10**400}, "exitCode"),
        ("status", {**EXIT_0, "stderrTail": 1}, "stderrTail"),
        ("status", {**EXIT_0, "outboxes": []}, "outboxes"),
        ("status", {**EXIT_0, "outboxes": {OUTBOX: "70"}}, "outboxes"),
        ("status", {**EXIT_0, "outboxes": {OUTBOX: -1}}, "outboxes"),
        ("metrics", {**POSTS["metrics"], "lines": "{}"}, "lines"),
        ("metrics", {**POSTS["metrics"], "lines": [1]}, "lines"),
        ("metrics", {**POSTS["metrics"], "lines": ["\ud800"]}, "lines"),
        ("metrics", {**POSTS["metrics"], "start": None}, "start"),
        ("metrics", {**POSTS["metrics"], "start": -3}, "start"),
        ("metrics", {**POSTS["metrics"], "end": 0}, "end"),
        ("metrics", {**POSTS["metrics"], "start": 4}, "end"),
        ("metrics", {**POSTS["metrics"], "end": 2**62}, "end"),
        ("metrics", {**POSTS["metrics"], "outbox": "stdout"}, "outbox"),
        ("metrics", {**POSTS["metrics"], "outbox": "outbox/\n"}, "outbox"),
        ("metrics", {**POSTS["metrics"], "outbox": "outbox/" + "x" * 300}, "outbox"),
        ("metrics", {**POSTS["metrics"], "outbox": None}, "outbox"),
        ("log", {**POSTS["log"], "data": 7}, "data"),
        ("log", {**POSTS["log"], "data": "\udc80"}, "data"),
        ("log", {**POSTS["log"], "offset": 1.5}, "offset"),
        ("log", {**POSTS["log"], "source": []}, "source"),
    ],
)
async def test_invalid_field_is_named(runner: Runner, route: str, body: object, field: str) -> None:
    await runner.post("version")
    text = json.dumps(body)  # escapes lone surrogates
    answer = await runner.client.post(route, content=text)
    assert answer.status_code == 400, answer.text
    assert field in answer.json()["error"] and "\n" not in answer.json()["error"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"start": ' + b"9" * 5000 + b"}"])
async def test_invalid_json(runner: Runner, content: bytes) -> None:
    answer = await runner.client.post("metrics", content=content)
    assert (answer.status_code, answer.json()) == (400, {"error": "the body is not JSON"})


async def test_invalid_outbox_name_is_not_waited_for(runner: Runner, world: RunnerWorld) -> None:
    await runner.post("version")
    await runner.post("status", {**EXIT_0, "outboxes": {"outbox/\n": 70, "stdout": 5}})
    assert (await world.ended())["attempts"][0]["runnerExit"]["outboxes"] == {}


async def test_every_answer_names_the_manager_and_the_attempt(
    world: RunnerWorld, application: ASGIApp, runner: Runner
) -> None:
    """Refusals too: a proxy in between may answer with any status, which must not count."""
    who = world.runner
    name = f"{world.reports.tokens.manager}/{who.experiment_id}/{who.trial_id}/{who.attempt}"
    assert runner.token.startswith(f"{world.reports.tokens.manager}.")
    stranger = Runner(world, application, who, "another.token")
    anybody = Runner(world, application, who, "")
    answers = [
        await stranger.any("version"),
        await anybody.any("metrics"),
        await runner.post("version"),
        *[await runner.any(route) for route in GETS],
        await runner.post("metrics", []),
        await runner.client.post("log", content=b" " * (BODY_LIMIT + 1)),
        await runner.client.get("version"),
        await runner.post("status", EXIT_0),
    ]
    await world.ended()
    answers.append(await runner.post("heartbeat"))
    assert [answer.status_code for answer in answers] == [403, 401, 200, 200, 200, 200, 400, 413, 405, 200, 410]
    assert {answer.headers["x-nni-manager"] for answer in answers} == {name}
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
    elsewhere = await runner.client.get("http://manager/trial/v1/a%0Ab/aaaaa/1/version")
    assert elsewhere.headers["x-nni-manager"] == world.reports.tokens.manager


async def test_an_end_is_taken_with_however_many_outboxes(runner: Runner, world: RunnerWorld) -> None:
    await runner.post("version")
    outboxes = {f"outbox/{n}": 0 for n in range(5000)}
    assert (await runner.post("status", {**EXIT_0, "outboxes": outboxes})).status_code == 200
    assert (await world.ended())["status"] == "SUCCEEDED"


async def test_undelivered_results_are_shown_on_the_trial(runner: Runner, world: RunnerWorld) -> None:
    told = ["The manager refuses outbox/a\n(no such outbox).", "x" * 1000, 7, *["more"] * 100]
    await runner.post("version")
    await runner.post("status", {**EXIT_0, "undelivered": told})
    trial = await world.ended()
    assert (trial["status"], trial["attempts"][0]["runnerExit"]["wasStarted"]) == ("SUCCEEDED", True)
    kept = trial["attempts"][0]["runnerExit"]["undelivered"]
    assert kept == ["The manager refuses outbox/a?(no such outbox).", "x" * 300, *["more"] * 18]
    assert trial["message"].startswith(
        "not everything was delivered: The manager refuses outbox/a?(no such outbox). xxx"
    )


async def test_a_command_that_the_runner_could_not_start(runner: Runner, world: RunnerWorld) -> None:
    await runner.post("version")
    await runner.post("status", {**EXIT_0, "exitCode": 126, "stderrTail": "no such shell", "wasStarted": False})
    with world.experiment.changes.watch() as changed:
        async with asyncio.timeout(10):
            while (trial := await world.trial())["attempt"] == 1:
                await changed.wait()
                changed.clear()
    attempt = trial["attempts"][0]
    assert (attempt["givenUp"], attempt["runnerExit"]["exitCode"]) == ("PLATFORM", 126)


async def test_logs_are_read_at_reported_end(runner: Runner, world: RunnerWorld) -> None:
    await runner.post("version")
    await runner.post("status", EXIT_0)
    await world.ended()
    assert (await runner.post("log", {"file": "stdout", "offset": 0, "data": "late"})).json() == {"offset": 4}
    assert (world.folder() / "stdout").read_text() == "late"
    assert (await runner.post("metrics")).status_code == 410


async def test_last_words_are_cut(runner: Runner, world: RunnerWorld) -> None:
    await runner.post("version")
    await runner.post("status", {**EXIT_0, "exitCode": 1, "stderrTail": "x" * 5000 + "the end"})
    tail = (await world.ended())["attempts"][0]["runnerExit"]["stderrTail"]
    assert len(tail) == 2048 and tail.endswith("the end")


async def test_unknown_routes_and_methods(runner: Runner) -> None:
    assert (await runner.client.get("secrets")).status_code == 404
    assert (await runner.client.get("version")).status_code == 405
    assert (await runner.client.get("http://manager/api/v1/experiments")).status_code == 404
    assert (await runner.client.get("http://manager/")).status_code == 404


# ------------------------------------------------------------------------------------------------ limits


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_that_is_too_large(runner: Runner, is_chunked: bool) -> None:
    await runner.post("version")
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(800):
            sent += 64 * 1024
            yield b" " * (64 * 1024)

    headers = {} if is_chunked else {"Content-Length": str(800 * 64 * 1024)}
    answer = await runner.client.post("metrics", content=pieces(), headers=headers)
    assert (answer.status_code, answer.json()) == (
        413,
        {"error": "the body is larger than the limit of 9 MB; send less"},
    )
    assert sent <= BODY_LIMIT + 64 * 1024 if is_chunked else sent == 0, "no more was read"


async def test_without_a_token_no_body_is_read(world: RunnerWorld, application: ASGIApp) -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    answer = await Runner(world, application, world.runner, "wrong").client.post("metrics", content=never())
    assert answer.status_code == 403


class SlowPost:
    """Announces the largest accepted body, and sends `came` bytes of it before it waits for `go_on`."""

    def __init__(self, runner: Runner, came: int) -> None:
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()
        headers = {"Content-Length": str(BODY_LIMIT)}
        self.post = asyncio.ensure_future(runner.client.post("metrics", content=self._pieces(came), headers=headers))

    async def _pieces(self, came: int) -> AsyncIterator[bytes]:
        piece = b" " * (64 * 1024)
        for _ in range(came // len(piece)):
            yield piece
        self.arrived.set()
        await self.go_on.wait()
        yield json.dumps(POSTS["metrics"]).encode()

    async def end(self) -> int:
        self.go_on.set()
        return (await self.post).status_code


async def test_announced_length_takes_no_room(runner: Runner, world: RunnerWorld, application: ASGIApp) -> None:
    """Three slow posts with one token once blocked all runners' heartbeats."""
    await runner.post("version")
    slow = [SlowPost(runner, 0) for _ in range(3)]
    for each in slow:
        await each.arrived.wait()
    other = Runner(world, application, await world.add_trial())
    assert [(await one.post(route)).status_code for one in (runner, other) for route in POSTS] == [200] * 10
    assert [await each.end() for each in slow] == [200] * 3


async def test_an_attempt_has_one_large_body_at_a_time(runner: Runner) -> None:
    await runner.post("version")
    first = SlowPost(runner, 2 * SMALL_BYTES)
    await first.arrived.wait()
    second = await runner.client.post("metrics", content=b" " * (2 * SMALL_BYTES))
    assert (second.status_code, second.headers["retry-after"]) == (429, "1")
    assert "another large post of this attempt" in second.json()["error"]
    assert (await runner.post("heartbeat")).status_code == 200
    assert await first.end() == 200
    assert (await runner.client.post("metrics", content=b" " * (2 * SMALL_BYTES) + b"{}")).status_code == 400


async def test_large_bodies_of_all_attempts_have_so_much_room(
    world: RunnerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_listener, "ROOM_BYTES", BODY_LIMIT)
    application = TrialListener(world.reports)
    runner, other = (Runner(world, application, who) for who in (world.runner, await world.add_trial()))
    for each in (runner, other):
        await each.post("version")
    slow = SlowPost(runner, BODY_LIMIT - 2 * SMALL_BYTES)
    await slow.arrived.wait()
    refused = await other.client.post("metrics", content=b" " * (3 * SMALL_BYTES))
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert (await other.post("heartbeat")).status_code == 200
    assert (await Runner(world, application, world.runner, "wrong").post("metrics")).status_code == 403
    assert await slow.end() == 200
    assert (await other.client.post("metrics", content=b" " * (3 * SMALL_BYTES) + b"{}")).status_code == 400


def test_a_large_body_that_is_alone_has_room() -> None:
    memory = BodyMemory(SMALL_BYTES)
    with memory.body("a") as body:
        for _ in range(4):
            body.grow(SMALL_BYTES)
    with memory.body("b") as body, memory.body("c") as later:
        body.grow(SMALL_BYTES + 1)
        with pytest.raises(TooBusy):
            later.grow(SMALL_BYTES + 1)


def test_an_attempt_has_so_many_small_bodies_at_a_time() -> None:
    memory = BodyMemory(SMALL_BYTES)
    with ExitStack() as stack:
        for _ in range(MOST_BODIES):
            stack.enter_context(memory.body("a"))
        with pytest.raises(TooBusy), memory.body("a"):
            raise AssertionError("it was let in")
        with memory.body("b"):
            pass
    with memory.body("a"):
        pass


async def test_a_body_that_does_not_come(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_listener, "BODY_S", 0.05)

    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    answer = await runner.client.post("heartbeat", content=never())
    assert (answer.status_code, answer.headers["connection"]) == (408, "close")


async def test_no_secret_is_shown(runner: Runner, world: RunnerWorld, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        for route in [*POSTS, *GETS]:
            assert runner.token not in (await runner.any(route)).text
    assert runner.token not in caplog.text and "secret" not in repr(world.reports.tokens)
