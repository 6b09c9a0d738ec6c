"""The runner's parts by themselves: settings, waits, printed results, log pieces, changes of files."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from nni_manager.domain.ids import CONTAINER
from trial_runner import inotify, protocol
from trial_runner.inotify import Changes, Event, Inotify
from trial_runner.loop import READ, Loop
from trial_runner.outboxes import Outboxes
from trial_runner.runner import settings
from trial_runner.runner.client import RETRY_WAITS_S, Body, Client, Fenced, Post, Unavailable
from trial_runner.runner.delivery import Delivery, Undelivered
from trial_runner.runner.output import Copy, Echo, LogFile, LogForward, text_of
from trial_runner.runner.posts import Status
from trial_runner.runner.results import OutboxForward, StdoutMetrics
from trial_runner.runner.settings import BadSetting
from trial_runner.wire.backoff import Backoff

pytestmark = pytest.mark.unit

_ENVIRONMENT = {
    protocol.ENV_MANAGER_URL: "http://manager:8081/trial/v1/exp1/abcde/1/",
    protocol.ENV_COMMAND: "true",
    protocol.ENV_EXPERIMENT_ID: "exp1",
    protocol.ENV_TRIAL_ID: "abcde",
}


def test_settings_have_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = settings.read(_ENVIRONMENT)
    assert told.manager_urls == ("http://manager:8081/trial/v1/exp1/abcde/1",)
    assert told.job_name == "nni_exp_exp1_trial_abcde"
    assert (told.system_dir, told.output_dir) == (str(tmp_path / "nni"), str(tmp_path / "nni"))
    assert told.code_dir == str(tmp_path / "nni" / "code")
    assert (told.is_reporter, told.channel, told.is_code_fetched) == (True, "auto", True)
    assert (told.grace_s, told.drain_s) == (5.0, 600.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (protocol.ENV_COMMAND, ""),
        (protocol.ENV_MANAGER_URL, ""),
        (protocol.ENV_MANAGER_URL, "manager:8081"),
        (protocol.ENV_TRIAL_ID, ""),
        (protocol.ENV_GRACE_S, "soon"),
        (protocol.ENV_GRACE_S, "-1"),
        (protocol.ENV_DRAIN_S, "nan"),
        (protocol.ENV_DRAIN_S, "inf"),
        (protocol.ENV_REPORTER, "yes"),
        (protocol.ENV_CHANNEL, "pigeon"),
        (protocol.ENV_CODE, "maybe"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=name):
        settings.read({**_ENVIRONMENT, name: value})


@pytest.mark.parametrize("token", ["", "two\nlines", "with blank", "ümlaut"])
def test_invalid_token_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(BadSetting, match=protocol.ENV_TOKEN) as refusal:
        settings.take_credential({protocol.ENV_TOKEN: token})
    assert not token or token not in str(refusal.value)


def test_a_token_is_taken_and_not_shown() -> None:
    environment = {protocol.ENV_TOKEN: "secret", "OTHER": "stays"}
    taken = settings.take_credential(environment)
    assert environment == {"OTHER": "stays"}
    assert "secret" not in repr(taken) + str(taken)
    assert taken.headers() == {"Authorization": "Bearer secret"}


@pytest.mark.parametrize(
    ("job_id", "restarts", "identity"),
    [("4711", None, "0000000012670000"), ("4711", "0", "0000000012670000"), ("4711", "2", "0000000012670002")],
)
def test_run_of_a_slurm_job_is_a_container(job_id: str, restarts: str | None, identity: str) -> None:
    variables = {"SLURM_JOB_ID": job_id} | ({} if restarts is None else {"SLURM_RESTART_COUNT": restarts})
    assert settings.container_of(variables) == protocol.container_of_run(4711, int(restarts or 0)) == identity
    assert CONTAINER.fullmatch(identity)


@pytest.mark.parametrize(
    "variables", [{}, {"SLURM_JOB_ID": "4711_3"}, {"SLURM_JOB_ID": "1", "SLURM_RESTART_COUNT": "x"}]
)
def test_other_containers_have_random_identities(variables: dict[str, str]) -> None:
    first, second = (settings.container_of(variables) for _ in range(2))
    assert first != second and CONTAINER.fullmatch(first)


def test_waits_grow_to_a_limit_and_begin_again() -> None:
    backoff = Backoff(RETRY_WAITS_S, least=0.5)
    waits = [backoff.next_wait() for _ in range(12)]
    expected = [*RETRY_WAITS_S, *[RETRY_WAITS_S[-1]] * 4]
    assert all(longest / 2 <= wait <= longest for wait, longest in zip(waits, expected, strict=True))
    backoff.reset()
    assert backoff.next_wait() <= RETRY_WAITS_S[0]


class Printed:
    """Standard output that grows, and what was found in it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "stdout"
        self.outbox = folder / "outbox.jsonl"
        self.said: list[str] = []
        self.follower = StdoutMetrics(str(self.file), str(self.outbox), self.said.append)

    def add(self, data: bytes, is_all: bool = False) -> list[str]:
        with self.file.open("ab") as file:
            file.write(data)
        self.follower.extract(is_all)
        return self.lines()

    def lines(self) -> list[str]:
        return self.outbox.read_text().splitlines() if self.outbox.exists() else []


@pytest.fixture
def printed(tmp_path: Path) -> Printed:
    return Printed(tmp_path)


_ONE = b"""NNISDK_MEb'{"type": "PERIODICAL", "sequence": 0, "value": "1"}'"""
_ONE_LINE = '{"type":"intermediate","value":1}'


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (_ONE + b"\n", [_ONE_LINE]),
        (b"50%|####  \r" + _ONE + b"\n", [_ONE_LINE]),
        (b"a\nloss 0.3 " + _ONE + b" more\nb\n", [_ONE_LINE]),
        (_ONE + _ONE + b"\n", [_ONE_LINE, _ONE_LINE]),
        (b"NNISDK_MEb'" + _ONE + b"\n", [_ONE_LINE]),
        (b"""NNISDK_MEb'{"type": "FINAL", "value": "{\\"a'}b\\": 1}"}'\n""", ['{"type":"final","value":{"a\'}b": 1}}']),
        (b"""NNISDK_MEb'{"type": "FINAL", "value": "\\"\xc3\xa4\\""}'\n""", ['{"type":"final","value":"\\u00e4"}']),
        (b"""NNISDK_MEb'{"type": "FINAL", "value": "[1,\\n2]"}'\n""", ['{"type":"final","value":[1, 2]}']),
        (b"""NNISDK_MEb'{"type": "FINAL", "value": 0.5}'\n""", ['{"type":"final","value":0.5}']),
        (b"""NNISDK_MEb'{"type": "REQUEST_PARAMETER", "value": "1"}'\n""", []),
        (b"""NNISDK_MEb'{"type": "FINAL", "value": "no json"}'\n""", []),
        (b"NNISDK_MEb'[1]'\nNNISDK_MEb'{\nNNISDK_ME\n", []),
        (b"""NNISDK_MEb'{"type": ["FINAL"], "value": "1"}'\n""", []),
    ],
)
def test_printed_results_are_found(printed: Printed, text: bytes, lines: list[str]) -> None:
    assert printed.add(text) == lines


def test_printed_results_are_found_however_the_bytes_come(printed: Printed) -> None:
    text = b"x" + _ONE + b"\n...\n" + _ONE + b"\n"
    for position in range(len(text)):
        printed.add(text[position : position + 1])
    assert printed.lines() == [_ONE_LINE, _ONE_LINE]


def test_a_last_printed_result_needs_no_newline(printed: Printed) -> None:
    assert printed.add(_ONE) == []
    assert printed.add(b"", is_all=True) == [_ONE_LINE]


def test_output_without_newlines_is_not_kept(printed: Printed) -> None:
    for _ in range(20):
        printed.add(b"\r" * 1_000_000)
    assert sys.getsizeof(printed.follower._buffer) < 1000
    for _ in range(20):
        printed.add(b"NNISDK_MEb'" + b"x" * 1_000_000)
    assert sys.getsizeof(printed.follower._buffer) < 6_000_000
    assert printed.add(b"\n" + _ONE + b"\n") == [_ONE_LINE]


def test_printed_results_are_the_same_when_found_again(printed: Printed, tmp_path: Path) -> None:
    printed.add(_ONE + b"\nother\n" + _ONE + b"\n")
    before = printed.outbox.read_bytes()
    StdoutMetrics(str(printed.file), str(printed.outbox), printed.said.append).extract(False)
    assert printed.outbox.read_bytes() == before


def test_printed_results_wait_for_a_disk_with_room(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", _no_room)
    printed.add(_ONE + b"\n")
    printed.add(_ONE + b"\n")
    monkeypatch.setattr(os, "write", real)
    assert len(printed.said) == 1
    assert printed.add(b"") == [_ONE_LINE, _ONE_LINE]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        ("ä€\U0001f600".encode(), "ä€\U0001f600"),
        (b"\xff\x00\xc3", "?\0?"),
        (b"\xed\xa0\x80", "???"),
    ],
)
def test_text_is_as_long_as_the_bytes(data: bytes, text: str) -> None:
    assert text_of(data) == text
    assert len(text.encode()) == len(data)


def _posted(forward: LogForward) -> list[dict[str, Any]]:
    """What is posted to a manager that stores everything."""
    bodies = []
    while forward.wanted_at() == 0.0:
        _, body = forward.post()
        bodies.append(body)
        end = body["offset"] + len(body["data"].encode())
        forward.settle(lambda end=end: {"offset": end})  # type: ignore[misc]
    return bodies


def test_characters_are_not_cut(tmp_path: Path) -> None:
    text = "a" + "€" * 60_000
    (tmp_path / "stdout").write_text(text, encoding="utf-8")
    bodies = _posted(LogForward(LogFile("stdout", str(tmp_path / "stdout")), "", Undelivered(print)))
    assert len(bodies) == 3
    assert all(len(body["data"].encode()) <= protocol.MAX_LOG_POST for body in bodies)
    assert "".join(body["data"] for body in bodies) == text


def test_half_a_character_waits_for_the_rest_until_the_end(tmp_path: Path) -> None:
    file = tmp_path / "stdout"
    file.write_bytes(b"a\xe2\x82")
    forward = LogForward(LogFile("stdout", str(file)), "", Undelivered(print))
    assert [body["data"] for body in _posted(forward)] == ["a"]
    assert forward.is_done
    forward.note_end()
    assert [body["data"] for body in _posted(forward)] == ["??"]


def _no_inotify(*_: object) -> int:
    raise OSError("no inotify instances are left")


def _until(loop: Loop, condition: Callable[[], object]) -> None:
    while not condition():
        loop.run_turn()


@pytest.mark.parametrize("missing", [None, "__init__", "add"])
def test_changes_are_reported_with_and_without_inotify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    monkeypatch.setattr(inotify, "_LOOK_S", 0.01)
    monkeypatch.setattr(inotify, "_GATHER_S", 0.01)
    if missing:
        monkeypatch.setattr(Inotify, missing, _no_inotify)
    told: list[bool] = []
    loop = Loop(_raise)
    Changes(
        loop, lambda: [str(tmp_path), str(tmp_path / "later")], lambda: told.append((tmp_path / "later/a").exists())
    )
    (tmp_path / "later").mkdir()
    _until(loop, lambda: told)
    (tmp_path / "later" / "a").write_text("x")
    _until(loop, lambda: told[-1])


def test_an_overflow_makes_every_folder_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(_raise)
    asked: list[bool] = []

    def folders() -> list[str]:
        asked.append(True)
        return [str(tmp_path)]

    told: list[bool] = []
    Changes(loop, folders, lambda: told.append(True))
    monkeypatch.setattr(Inotify, "events", lambda self: iter([Event(-1, inotify.OVERFLOW, b"")]))
    (tmp_path / "a").write_text("x")
    _until(loop, lambda: told)
    assert len(asked) == 2


def test_hang_up_calls_the_registered_functions_only() -> None:
    told: list[tuple[str, int]] = []
    loop = Loop(_raise)
    pipes = [os.pipe() for _ in range(2)]

    def hear(name: str, mask: int) -> None:
        told.append((name, mask))
        for reader, _ in pipes:  # the first that hears of it ends both
            loop.unwatch(reader)

    for name, (reader, writer) in zip("ab", pipes, strict=True):
        loop.watch(reader, lambda mask, name=name: hear(name, mask))
        os.close(writer)
    loop.run_turn()
    assert [mask for _, mask in told] == [READ]
    for reader, _ in pipes:
        os.close(reader)


def test_echo_without_a_reader_ends(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    (tmp_path / "stdout").touch()
    echo = Echo([Copy(str(tmp_path / "stdout"), writer)])
    echo.start()
    (tmp_path / "stdout").write_text("x")
    echo.finish(10)
    assert not echo.is_alive()
    os.close(writer)


def _raise(error: Exception) -> None:
    raise error


def _no_room(descriptor: int, data: bytes) -> int:
    raise OSError(28, "No space left on device")


def test_posts_are_as_large_as_the_contract_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_METRICS_POST", 100)
    (tmp_path / protocol.OUTBOX_FOLDER).mkdir()
    (tmp_path / protocol.MAIN_OUTBOX).write_text('{"value": 1}\n' * 50)
    bodies = []
    outboxes = Outboxes(str(tmp_path), print)
    forward = OutboxForward(outboxes, str(tmp_path), {}, Undelivered(print))
    while forward.wanted_at() is not None:
        _, body = forward.post()
        bodies.append(body)
        forward.settle(lambda end=body["end"]: {"offset": end})  # type: ignore[misc]
    sizes = [sum(len(line) + 1 for line in body["lines"]) for body in bodies]
    assert sum(sizes) == 13 * 50
    assert max(sizes) <= 100


class _Together:
    """A client of a manager that stores everything and takes several posts in one request; the first answer to such a
    request may be lost, and the attempt is decided then."""

    takes_together = True

    def __init__(self, *, is_first_lost: bool = False) -> None:
        self.requests: list[list[str]] = []
        self._is_lost = is_first_lost
        self._is_decided = False
        #: What the end said of them.
        self.outboxes: Body = {}

    def post(self, route: str, body: Body) -> Body:
        self.requests.append([route])
        return self._take(route, body)

    def post_together(self, posts: list[Post]) -> list[Callable[[], Body]]:
        self.requests.append([route for route, _ in posts])
        answers = [self._take(*post) for post in posts]
        if self._is_lost:
            self._is_lost, self._is_decided = False, True
            raise Unavailable("the answer was lost")
        return [lambda told=answer: told for answer in answers]  # type: ignore[misc]

    def close(self) -> None:
        """It has no connection."""

    def _take(self, route: str, body: Body) -> Body:
        if self._is_decided and route != "log":
            raise Fenced("the attempt is decided")
        self.outboxes = body.get("outboxes", self.outboxes)
        end = body.get("end", body.get("offset", 0) + len(body.get("data", "")))
        return {"stop": False, "offset": end}


def _delivered(folder: Path, client: _Together) -> Delivery:
    """What a command left behind that reported, printed and ended."""
    (folder / protocol.OUTBOX_FOLDER).mkdir()
    (folder / protocol.MAIN_OUTBOX).write_text('{"value": 1}\n')
    (folder / "stdout").write_text("out\n")
    (folder / "stderr").write_text("err\n")
    undelivered = Undelivered(print)
    results = OutboxForward(Outboxes(str(folder), print), str(folder), {}, undelivered)
    logs = [LogForward(LogFile(name, str(folder / name)), "", undelivered) for name in ("stdout", "stderr")]
    end = Status(lambda: {"event": "exited", "outboxes": results.sizes()}, lambda _: None, print, 1)
    delivery = Delivery(cast(Client, client), [results, *logs], 20.0, lambda: None, print)
    delivery.finish(end)
    delivery.start()
    delivery.join(20.0)
    assert not delivery.is_alive() and not undelivered.sentences()
    return delivery


def test_posts_at_the_same_time_are_one_request(tmp_path: Path) -> None:
    """Each request is a turn of TLS, of HTTP and of the database: hundreds of trials make thousands of them."""
    client = _Together()
    _delivered(tmp_path, client)
    assert client.requests == [["metrics", "status", "log", "log"]]
    assert client.outboxes == {protocol.MAIN_OUTBOX: 13}, "the end says what is stored with it"


class _OutOfMemory(OutboxForward):
    """Results that cannot be looked for once."""

    _has_failed = False

    def wanted_at(self) -> float | None:
        if not self._has_failed:
            self._has_failed = True
            raise MemoryError
        return super().wanted_at()


def test_a_look_that_fails_once_costs_no_result(tmp_path: Path) -> None:
    client = _Together()
    (tmp_path / protocol.OUTBOX_FOLDER).mkdir()
    (tmp_path / protocol.MAIN_OUTBOX).write_text('{"value": 1}\n')
    said: list[str] = []
    results = _OutOfMemory(Outboxes(str(tmp_path), print), str(tmp_path), {}, Undelivered(print))
    end = Status(lambda: {"event": "exited", "outboxes": results.sizes()}, lambda _: None, print, 1)
    delivery = Delivery(cast(Client, client), [results], 20.0, lambda: None, said.append)
    delivery.finish(end)
    delivery.start()
    delivery.join(20.0)
    assert client.requests == [["metrics", "status"]]
    assert "MemoryError" in said[0] and said[1:] == ["the manager answers again"]


class _EndsMeanwhile(OutboxForward):
    """Results whose command ends while the delivery is on its way from its news to what is due."""

    def end_with(self, end: Callable[[], None]) -> "_EndsMeanwhile":
        self._end: Callable[[], None] | None = end
        return self

    def note_change(self) -> None:
        super().note_change()
        end, self._end = self._end, None
        if end is not None:
            end()


def test_end_is_posted_after_last_results(tmp_path: Path) -> None:
    """The manager decides by it at once, and refuses the results that come afterwards: SUCCEEDED without a result."""
    client = _Together()
    results = _EndsMeanwhile(Outboxes(str(tmp_path), print), str(tmp_path), {}, Undelivered(print))
    assert results.wanted_at() is None, "what comes now waits a moment for company"
    (tmp_path / protocol.OUTBOX_FOLDER).mkdir()
    (tmp_path / protocol.MAIN_OUTBOX).write_text('{"value": 1}\n')
    end = Status(lambda: {"event": "exited", "outboxes": results.sizes()}, lambda _: None, print, 1)
    delivery = Delivery(cast(Client, client), [results], 20.0, lambda: None, print)
    results.end_with(lambda: delivery.finish(end))
    delivery.notice()
    delivery.start()
    delivery.join(20.0)
    assert client.requests == [["metrics", "status"]]
    assert client.outboxes == {protocol.MAIN_OUTBOX: 13}


def test_an_end_that_was_taken_and_not_answered(tmp_path: Path) -> None:
    """The manager has decided by it, and refuses the results that came with it when they come again: logs are taken."""
    client = _Together(is_first_lost=True)
    assert not _delivered(tmp_path, client).is_fenced
    assert client.requests[1:] in (
        [["metrics"], ["status"], ["log"], ["log"]],
        [["metrics"], ["status"], ["log", "log"]],
    )
