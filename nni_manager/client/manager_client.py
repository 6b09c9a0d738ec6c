"""The REST client of commands and programs, with a method per route.

Results are the API's documented JSON: camelCase, times in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nni_manager.client import answers, silence
from nni_manager.client.address import Address
from nni_manager.client.answers import NotAnAnswer
from nni_manager.client.connection import (
    Answer,
    EventStream,
    NobodyListens,
    Query,
    Request,
    exchange,
    find_silence,
    not_an_answer,
)
from nni_manager.domain.errors import Ending, NniManagerError, NotFound

Json = dict[str, Any]

_TIMEOUT_S = 30.0
#: Seconds; making an experiment includes packing its code: half a minute for 300 MB on a busy machine.
_PACKING_TIMEOUT_S = 600.0
#: Seconds; a live stream sends a comment every 15.
_STREAM_TIMEOUT_S = 60.0
#: Seconds; the daemon unpacks the code before it answers.
_CODE_TIMEOUT_S = 300.0
#: Trials per request of `all_trials`.
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A part of a log file."""

    data: bytes
    #: Its first byte in the file.
    offset: int
    #: Size of the file when it was read, in bytes.
    size: int

    @property
    def end(self) -> int:
        """The offset of the next part."""
        return self.offset + len(self.data)


class ManagerClient:
    """The client of a daemon; keeps no connection between calls.

    Every method raises Unreachable, AccessRefused, NotFound, Conflict, InvalidInput, ConfigInvalid (with problems),
    StoreUnavailable, or NniManagerError with the daemon's message.
    """

    def __init__(self, address: Address, again: Callable[[NniManagerError], Address] | None = None) -> None:
        """`again`: finds the next daemon if this one has ended (NobodyListens) or is about to (Ending).

        It is used for the first call, and for calls that any daemon can answer. None: use only this daemon.
        """
        self.address = address
        self._again = again
        self._was_asked = False

    @property
    def is_here(self) -> bool:
        """Whether the daemon certainly runs on this machine, so that its processes and files are visible here."""
        return bool(self.address.socket)

    # The daemon

    def daemon(self) -> Json:
        return self._get("/api/v1/daemon")

    def stop_daemon(self, *, experiments: bool = False) -> None:
        """Ask the daemon to end. Jobs keep running unless `experiments`, which stops all experiments first."""
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
        provenance: Json | None = None,
        id: str = "",
    ) -> str:
        """Makes an experiment; returns its id, which is `id` where one is given: raises Conflict when it is taken.
        `config`: text of an experiment file, `file` its name in messages.
        Relative paths start at the absolute `directory`, or in the code that was sent as `code` (SHA-256).
        `environment`: None: the daemon's. `secrets`: reference → value, of those the daemon cannot look up.
        `provenance`: what was recorded where the code is; None: the daemon looks there itself. `endpoint`: a port for
        the experiment, ``{"port": number or None, "urlPrefix": text}``."""
        body: Json = {"config": config, "file": file}
        given = {
            "directory": directory,
            "interpreter": interpreter,
            "code": code,
            "environment": environment,
            "endpoint": endpoint,
            "debug": debug or None,
            "secrets": secrets,
            "provenance": provenance,
            "id": id,
        }
        body |= {name: value for name, value in given.items() if value not in ("", None)}
        return str(self._json("POST", _EXPERIMENTS, body, timeout_s=_PACKING_TIMEOUT_S, opens=True)["id"])

    def plan(self, config: str, **caller: Any) -> list[Json]:
        """Where the first trials would run, by training service. `caller`: the other arguments of `create`."""
        body: Json = {"config": config, **{name: value for name, value in caller.items() if value not in ("", None)}}
        return list(self._json("POST", "/api/v1/platforms/plan", body, timeout_s=_PACKING_TIMEOUT_S)["services"])

    def clean(self, platforms: Sequence[str] = ()) -> list[Json]:
        """End leftover jobs of closed experiments on these platforms, or on all; return the outcome of each."""
        body = {"platforms": list(platforms)}
        return list(self._json("POST", "/api/v1/platforms/clean", body, timeout_s=None)["cleaned"])

    def left(self, config: str, *, remove: Sequence[str] | None = None, **caller: Any) -> list[Json]:
        """Leftover objects of experiments on a config's services, by service. `caller`: as in `plan`.

        `remove`: remove and return only the objects of experiments with these ids.
        """
        body: Json = {"config": config, **{name: value for name, value in caller.items() if value not in ("", None)}}
        query: Query = {"remove": None if remove is None else list(remove)}
        found = self._json("POST", "/api/v1/platforms/left", body, query, timeout_s=None, opens=True)
        return list(found["services"])

    def experiments(self, status: str | None = None) -> list[Json]:
        """The experiments, oldest first."""
        return list(self._get(_EXPERIMENTS, {"status": status})["experiments"])

    def provenance(self, id: str) -> Json | None:
        """The provenance record of an experiment, or None."""
        try:
            return self._get(f"{_experiment(id)}/provenance")
        except NotFound:
            return None

    def disk_use(self, id: str) -> Json:
        """The disk use of an experiment on the manager's machine, in bytes by part."""
        return self._get(f"{_experiment(id)}/disk")

    def disk(self) -> Json:
        """The disk of the data directory."""
        return self._get("/api/v1/disk")

    def start_tensorboard(self, id: str, trials: Sequence[str], port: int | None = None) -> Json:
        """Start TensorBoard on the manager's machine for these trials; return when it answers."""
        body: Json = {"trials": list(trials)} | ({"port": port} if port is not None else {})
        return self._json("POST", f"{_experiment(id)}/tensorboards", body, timeout_s=_CODE_TIMEOUT_S)

    def tensorboards(self, id: str) -> list[Json]:
        """The TensorBoards of an experiment, oldest first."""
        return list(self._get(f"{_experiment(id)}/tensorboards")["tensorboards"])

    def stop_tensorboards(self, id: str) -> None:
        """Ends all TensorBoards of an experiment."""
        self._call("DELETE", f"{_experiment(id)}/tensorboards")

    def report(self, id: str) -> bytes:
        """The report of an experiment: one HTML file."""
        return self._call("GET", f"{_experiment(id)}/report", timeout_s=_PACKING_TIMEOUT_S).body

    def experiment(self, id: str) -> Json:
        return self._get(_experiment(id))

    def change(self, id: str, fields: Mapping[str, object]) -> Json:
        """Changes fields of the config; None removes a limit. Returns the experiment as `experiment` does."""
        return self._json("PATCH", _experiment(id), dict(fields))

    def stop(self, id: str) -> Json:
        """Stops an experiment; returns when its trials have ended."""
        return self._json("POST", f"{_experiment(id)}/stop", timeout_s=None)

    def stop_all(self) -> list[str]:
        """Stops all experiments; returns their ids when all have stopped."""
        return list(self._json("POST", f"{_EXPERIMENTS}/stop", timeout_s=None)["stopped"])

    def resume(
        self,
        id: str,
        *,
        endpoint: Json | None = None,
        working_directory: str | None = None,
        debug: bool = False,
        secrets: Mapping[str, str] | None = None,
    ) -> Json:
        """Open a stopped experiment, or continue one on hold. `secrets`: reference → new value.

        `endpoint`: as in `create`; `working_directory`: parent of a moved folder.
        """
        body: Json = {"endpoint": endpoint, "workingDirectory": working_directory, "debug": debug}
        body |= {"secrets": dict(secrets)} if secrets else {}
        return self._json("POST", f"{_experiment(id)}/resume", body, opens=True)

    def renew_secrets(self, id: str, secrets: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        """Replace `secrets`, reference → new value. `environment`: for an experiment without its private file."""
        body = {"secrets": dict(secrets), "environment": None if environment is None else dict(environment)}
        self._call("PUT", f"{_experiment(id)}/credentials", body)

    def view(self, id: str, *, endpoint: Json | None = None, working_directory: str | None = None) -> Json:
        """Open a stopped experiment for reading, even one unknown to the daemon."""
        body = {"id": id, "workingDirectory": working_directory, "endpoint": endpoint}
        return self._json("POST", f"{_EXPERIMENTS}/view", body, opens=True)

    def delete(self, id: str) -> None:
        """Removes a stopped experiment and its folder."""
        self._call("DELETE", _experiment(id))

    def import_data(self, id: str, data: Sequence[Mapping[str, object]]) -> None:
        """Import results for the tuner: `data`, [{parameter, value}]."""
        self._call("POST", f"{_experiment(id)}/import", [dict(entry) for entry in data])

    def export(self, id: str) -> list[Json]:
        """Parameters and results of all successful trials, with ``pareto`` if there are objectives."""
        return list(self._decoded(self._call("GET", f"{_experiment(id)}/export"), "objects"))

    def events(self, id: str) -> EventStream:
        """The experiment's state, now and after every change, until its end. Raises Unreachable if the daemon dies."""
        request = Request(method="GET", path=f"{_experiment(id)}/events", query={}, timeout_s=_STREAM_TIMEOUT_S)
        return EventStream(self.address, request)

    # Code

    def has_code(self, sha256: str) -> bool:
        """Whether the daemon already has the code."""
        try:
            self._get(_code(sha256))
        except NotFound:
            return False
        return True

    def send_code(self, archive: Path, sha256: str) -> None:
        """`archive`: a packed code directory; `sha256`: its digest in hex."""
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
        """Returns ``{"id", "sequenceId"}`` of the new trial."""
        return self._json("POST", f"{_experiment(id)}/trials", {"parameters": parameters})

    def trial(self, id: str, trial_id: str) -> Json:
        """A trial with its attempts."""
        return self._get(_trial(id, trial_id))

    def kill_trial(self, id: str, trial_id: str) -> None:
        """Request the end of a trial; return before it ends."""
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
        """The results in the order of storing; `after`: only those with a greater id."""
        query = {"trial": trial, "type": type, "after": after, "limit": limit, "offset": offset}
        return list(self._get(f"{_experiment(id)}/metrics", query)["metrics"])

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

    def trial_files(self, id: str, trial_id: str, attempt: int | None = None) -> Json:
        """``{attempt, files: [{name, place}]}``: what `trial_file` can read of an attempt; none: the latest."""
        return self._get(f"{_trial(id, trial_id)}/files", {"attempt": attempt})

    def trial_file(self, id: str, trial_id: str, name: str, *, attempt: int, offset: int, limit: int) -> LogPart:
        """A range of a file from `trial_files`."""
        query = {"offset": offset, "limit": limit, "attempt": attempt}
        return self._log(f"{_trial(id, trial_id)}/files/{quote(name)}", query)

    def experiment_log(self, id: str, name: str, *, offset: int = 0, limit: int | None = None) -> LogPart:
        """`name`: nnimanager.log or dispatcher.log."""
        return self._log(f"{_experiment(id)}/logs/{quote(name, safe='')}", {"offset": offset, "limit": limit})

    # Helpers

    def _log(self, path: str, query: Query) -> LogPart:
        answer = self._call("GET", path, query=query)
        headers = {name.lower(): value for name, value in answer.headers.items()}
        try:
            return LogPart(data=answer.body, offset=int(headers["x-offset"]), size=int(headers["x-size"]))
        except (KeyError, ValueError):
            raise not_an_answer(self.address, "X-Offset and X-Size are missing") from None

    def _get(self, path: str, query: Query | None = None) -> Json:
        return self._json("GET", path, query=query)

    def _json(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Query | None = None,
        timeout_s: float | None = _TIMEOUT_S,
        opens: bool = False,
    ) -> Json:
        answer: Json = self._decoded(self._call(method, path, body, query, timeout_s, opens), "object")
        return answer

    def _decoded(self, answer: Answer, form: str) -> Any:
        try:
            return answers.decode(answer.body, form)
        except NotAnAnswer as error:
            raise not_an_answer(self.address, error) from None

    def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Query | None = None,
        timeout_s: float | None = _TIMEOUT_S,
        opens: bool = False,
    ) -> Answer:
        request = Request(method=method, path=path, query=query or {}, body=body, timeout_s=timeout_s)
        is_for_any, self._was_asked = opens or not self._was_asked, True
        try:
            return self._exchange(request)
        except (NobodyListens, Ending) as error:
            if self._again is None or not is_for_any:
                raise
            self.address = self._again(error)
        return self._exchange(request)

    def _exchange(self, request: Request) -> Answer:
        with silence.reported(lambda: find_silence(self.address)):
            return exchange(self.address, request)


def _code(sha256: str) -> str:
    return f"/api/v1/code/{sha256}"


_EXPERIMENTS = "/api/v1/experiments"


def _experiment(id: str) -> str:
    return f"{_EXPERIMENTS}/{quote(id, safe='')}"


def _trial(id: str, trial_id: str) -> str:
    return f"{_experiment(id)}/trials/{quote(trial_id, safe='')}"
