"""One method per route of the REST API. What it answers is JSON as the API documents it, camelCase, times in ms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nni_manager.client.address import Address
from nni_manager.client.connection import Answer, Query, Request, exchange, open_answer, read_events
from nni_manager.domain.errors import NotFound

Json = dict[str, Any]

_TIMEOUT_S = 30.0
#: Seconds; an experiment is made when its code is packed, and 300 MB take half a minute on a busy machine.
_PACKING_TIMEOUT_S = 600.0
#: Seconds; a stream that is alive sends a comment every 15.
_STREAM_TIMEOUT_S = 60.0
#: Seconds; the daemon unpacks what it got before it answers.
_CODE_TIMEOUT_S = 300.0
#: Trials asked for at a time by `all_trials`.
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A stretch of a log file."""

    data: bytes
    #: Where it starts in the file.
    offset: int
    #: Bytes the file had when it was read.
    size: int

    @property
    def end(self) -> int:
        """The offset where the next stretch starts."""
        return self.offset + len(self.data)


class ManagerClient:
    """Talks to one daemon; holds no connection between calls.

    Every method raises Unreachable, AccessRefused, NotFound, Conflict, InvalidInput, ConfigInvalid (with problems),
    StoreUnavailable, or NniManagerError with the daemon's sentence.
    """

    def __init__(self, address: Address) -> None:
        self.address = address

    @property
    def is_here(self) -> bool:
        """Whether the daemon runs on this machine for certain: its processes and files are ours to look at."""
        return bool(self.address.socket)

    # The daemon

    def health(self) -> Json:
        """Answers as long as the daemon lives."""
        return self._get("/healthz")

    def ready(self) -> Json:
        """The daemon's word that it is ready. Raises StoreUnavailable with the reason while it is not."""
        return self._get("/readyz")

    def daemon(self) -> Json:
        return self._get("/api/v1/daemon")

    def stop_daemon(self, *, experiments: bool = False) -> None:
        """Asks the daemon to end. Jobs go on, unless its experiments are stopped as well."""
        self._call("POST", "/api/v1/daemon/stop", {"experiments": experiments}, timeout_s=None)

    # Experiments

    def create(
        self,
        config: str,
        *,
        file: str = "",
        directory: str = "",
        environment: Mapping[str, str] | None = None,
        interpreter: str = "",
        code: str = "",
        endpoint: Json | None = None,
        debug: bool = False,
        secrets: Mapping[str, str] | None = None,
    ) -> str:
        """`config`: text of an experiment file that messages call `file`, its relative paths starting at the absolute
        `directory`, or in the code that was sent as `code`. No `environment`: the daemon's own. `secrets`: reference →
        value, of what cannot be looked up there. `endpoint`: a port of its own, ``{"port": number or None, "urlPrefix":
        text}``. Answers the new id."""
        body: Json = {"config": config, "file": file}
        given = {
            "directory": directory,
            "interpreter": interpreter,
            "code": code,
            "environment": environment,
            "endpoint": endpoint,
            "debug": debug or None,
            "secrets": secrets,
        }
        body |= {name: value for name, value in given.items() if value not in ("", None)}
        return str(self._json("POST", _EXPERIMENTS, body, timeout_s=_PACKING_TIMEOUT_S)["id"])

    def plan(self, config: str, **caller: Any) -> list[Json]:
        """The places where first trials would go, by training service. `caller`: as of `create`."""
        body: Json = {"config": config, **{name: value for name, value in caller.items() if value not in ("", None)}}
        services: list[Json] = self._json("POST", "/api/v1/platforms/plan", body, timeout_s=_PACKING_TIMEOUT_S)[
            "services"
        ]
        return services

    def clean(self, platforms: Sequence[str] = ()) -> list[Json]:
        """Ends what closed experiments left on these platforms, or on all; says of each what became of it."""
        body = {"platforms": list(platforms)}
        cleaned: list[Json] = self._json("POST", "/api/v1/platforms/clean", body, timeout_s=None)["cleaned"]
        return cleaned

    def left(self, config: str, *, remove: Sequence[str] | None = None, **caller: Any) -> list[Json]:
        """What experiments left on the services of a config, by service; removes what those in `remove` (ids) left, and
        answers that alone. `caller`: as of `create`."""
        body: Json = {"config": config, **{name: value for name, value in caller.items() if value not in ("", None)}}
        query: Query = {"remove": None if remove is None else list(remove)}
        found = self._json("POST", "/api/v1/platforms/left", body, query, timeout_s=None)
        services: list[Json] = found["services"]
        return services

    def experiments(self, status: str | None = None) -> list[Json]:
        """The experiments, oldest first."""
        found: list[Json] = self._get(_EXPERIMENTS, {"status": status})["experiments"]
        return found

    def experiment(self, id: str) -> Json:
        return self._get(_experiment(id))

    def change(self, id: str, fields: Mapping[str, object]) -> Json:
        """Fields as in the config; None takes a limit away. Answers the experiment as `experiment` does."""
        return self._json("PATCH", _experiment(id), dict(fields))

    def stop(self, id: str) -> Json:
        """Returns when its trials have ended."""
        return self._json("POST", f"{_experiment(id)}/stop", timeout_s=None)

    def stop_all(self) -> list[str]:
        """Returns when all have stopped; answers which."""
        stopped: list[str] = self._json("POST", f"{_EXPERIMENTS}/stop", timeout_s=None)["stopped"]
        return stopped

    def resume(
        self,
        id: str,
        *,
        endpoint: Json | None = None,
        working_directory: str | None = None,
        debug: bool = False,
        secrets: Mapping[str, str] | None = None,
    ) -> Json:
        """`endpoint` as in `create`; `working_directory`: what holds the experiment's folder, if that was moved;
        `secrets`: reference → value, of those that are given anew."""
        body: Json = {"endpoint": endpoint, "workingDirectory": working_directory, "debug": debug}
        body |= {"secrets": dict(secrets)} if secrets else {}
        return self._json("POST", f"{_experiment(id)}/resume", body)

    def renew_secrets(self, id: str, secrets: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        """Reference → value; others stay. `environment`: for an experiment whose private file is missing; None: the
        daemon's own."""
        body = {"secrets": dict(secrets), "environment": None if environment is None else dict(environment)}
        self._call("PUT", f"{_experiment(id)}/credentials", body)

    def view(self, id: str, *, endpoint: Json | None = None, working_directory: str | None = None) -> Json:
        """Opens a stopped experiment for reading only, also one that the daemon does not know yet."""
        body = {"id": id, "workingDirectory": working_directory, "endpoint": endpoint}
        return self._json("POST", f"{_EXPERIMENTS}/view", body)

    def delete(self, id: str) -> None:
        """Removes a stopped experiment and its folder."""
        self._call("DELETE", _experiment(id))

    def import_data(self, id: str, data: Sequence[Mapping[str, object]]) -> None:
        """`data`: [{parameter, value}], for the tuner."""
        self._call("POST", f"{_experiment(id)}/import", [dict(entry) for entry in data])

    def events(self, id: str) -> Iterator[Json]:
        """The experiment's state, at once and after every change, until it is closed or the daemon ends."""
        request = Request(method="GET", path=f"{_experiment(id)}/events", query={}, timeout_s=_STREAM_TIMEOUT_S)
        with open_answer(self.address, request) as response:
            yield from read_events(response)

    # Code

    def has_code(self, sha256: str) -> bool:
        """Whether code was sent before."""
        try:
            self._get(_code(sha256))
        except NotFound:
            return False
        return True

    def send_code(self, archive: Path, sha256: str) -> None:
        """`archive`: a packed code directory; `sha256`: of its bytes, in hex."""
        request = Request(method="PUT", path=_code(sha256), query={}, file=archive, timeout_s=_CODE_TIMEOUT_S)
        exchange(self.address, request)

    # Trials

    def trials(
        self, id: str, *, status: str | None = None, order: str = "sequence", limit: int = 100, offset: int = 0
    ) -> Json:
        """The trials: ``{"total": n, "trials": […]}``."""
        query = {"status": status, "order": order, "limit": limit, "offset": offset}
        return self._get(f"{_experiment(id)}/trials", query)

    def all_trials(self, id: str, *, status: str | None = None) -> Iterator[Json]:
        """Every trial by sequence id, a page at a time."""
        offset = 0
        while True:
            page = self.trials(id, status=status, limit=_PAGE, offset=offset)["trials"]
            yield from page
            if len(page) < _PAGE:
                return
            offset += _PAGE

    def add_trial(self, id: str, parameters: object) -> Json:
        """Answers ``{"id", "sequenceId"}``."""
        return self._json("POST", f"{_experiment(id)}/trials", {"parameters": parameters})

    def trial(self, id: str, trial_id: str) -> Json:
        """A trial with its attempts."""
        return self._get(_trial(id, trial_id))

    def kill_trial(self, id: str, trial_id: str) -> None:
        """Asks it to end; returns before it has."""
        self._call("POST", f"{_trial(id, trial_id)}/kill")

    def metrics(
        self,
        id: str,
        *,
        trial: str | None = None,
        type: str | None = None,
        after: int = 0,
        limit: int = 1000,
        offset: int = 0,
    ) -> list[Json]:
        """The results in the order they were stored; `after`: only those with a greater id."""
        query = {"trial": trial, "type": type, "after": after, "limit": limit, "offset": offset}
        found: list[Json] = self._get(f"{_experiment(id)}/metrics", query)["metrics"]
        return found

    # Logs

    def trial_log(
        self,
        id: str,
        trial_id: str,
        name: str,
        *,
        offset: int = 0,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> LogPart:
        """`name`: stdout, stderr or trial.log; a negative `offset` counts from the end; no `attempt`: the latest."""
        query = {"offset": offset, "limit": limit, "attempt": attempt}
        return self._log(f"{_trial(id, trial_id)}/logs/{quote(name, safe='')}", query)

    def experiment_log(self, id: str, name: str, *, offset: int = 0, limit: int | None = None) -> LogPart:
        """`name`: nnimanager.log or dispatcher.log."""
        return self._log(f"{_experiment(id)}/logs/{quote(name, safe='')}", {"offset": offset, "limit": limit})

    # Helpers

    def _log(self, path: str, query: Query) -> LogPart:
        answer = self._call("GET", path, query=query)
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return LogPart(data=answer.body, offset=int(headers["x-offset"]), size=int(headers["x-size"]))

    def _get(self, path: str, query: Query | None = None) -> Json:
        return self._json("GET", path, query=query)

    def _json(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Query | None = None,
        timeout_s: float | None = _TIMEOUT_S,
    ) -> Json:
        answer: Json = json.loads(self._call(method, path, body, query, timeout_s).body)
        return answer

    def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Query | None = None,
        timeout_s: float | None = _TIMEOUT_S,
    ) -> Answer:
        request = Request(method=method, path=path, query=query or {}, body=body, timeout_s=timeout_s)
        return exchange(self.address, request)


def _code(sha256: str) -> str:
    return f"/api/v1/code/{sha256}"


_EXPERIMENTS = "/api/v1/experiments"


def _experiment(id: str) -> str:
    return f"{_EXPERIMENTS}/{quote(id, safe='')}"


def _trial(id: str, trial_id: str) -> str:
    return f"{_experiment(id)}/trials/{quote(trial_id, safe='')}"
