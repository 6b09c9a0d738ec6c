"""An experiment on a scripted cluster that the test controls, and its state as users see it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance import user_views
from tests.acceptance.scripted_cluster import ScriptedCluster
from tests.live_daemon import Daemon
from tests.waiting import until

Json = dict[str, Any]

#: Proposal of the tuner after all names are used.
ONE_MORE = "one more"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """State in API, page and tuner at one time. Trials are identified by the name that is their parameter."""

    state: Json
    trials: dict[str, Json]
    #: (status, reason on the page).
    rows: dict[str, tuple[str, str]]
    page: str
    notes: list[Json]

    def told(self, name: str, key: str) -> list[Json]:
        """The tuner's note about this trial under `key`: `learned` or `ended`."""
        return [note for note in self.notes if note.get(key) == self.trials[name]["parameterId"]]


class ScriptedExperiment:
    """One concurrent trial per name. `fields`: additional fields of the config."""

    def __init__(
        self, daemon: Daemon, code: Path, notes: Path, names: Sequence[str], cluster: Json, **fields: Any
    ) -> None:
        self.daemon = daemon
        self.notes = notes
        config = {
            "searchSpace": {"x": {"_type": "choice", "_value": ["any"]}},
            "trialCommand": "true",
            "trialCodeDirectory": ".",
            "trialConcurrency": len(names),
            "maxTrialNumber": len(names),
            "tuner": listed_tuner(notes, [*names, ONE_MORE]),
            "trainingService": {"platform": "scripted", **cluster},
        }
        self.id = daemon.create({**config, **fields}, code)
        self.cluster = ScriptedCluster(daemon.data / self.id)

    @property
    def path(self) -> str:
        return f"/experiments/{self.id}"

    def view(self) -> View:
        """Read the API, then the page; the caller ensures that nothing changes in between."""
        listed = self._listed()
        trials = [self.daemon.call("GET", f"{self.path}/trials/{trial['id']}") for trial in listed]
        state, page = self.daemon.status(self.id), user_views.page(self.daemon, self.path)
        rows = user_views.trials_on(self.daemon, self.id)
        return View(
            state=state,
            trials={trial["parameters"]["x"]: trial for trial in trials},
            rows={trial["parameters"]["x"]: rows[trial["id"]] for trial in trials},
            page=page,
            notes=user_views.notes(self.notes),
        )

    def kill(self, *names: str) -> None:
        ids = {trial["parameters"]["x"]: trial["id"] for trial in self._listed()}
        for name in names:
            self.daemon.call("POST", f"{self.path}/trials/{ids[name]}/kill")

    def begin_stop(self) -> threading.Thread:
        """The thread ends when the experiment is closed."""
        thread = threading.Thread(target=self._stop)
        thread.start()
        return thread

    def _stop(self) -> None:
        with self.daemon.client() as client:
            assert client.post(f"/api/v1{self.path}/stop", timeout=60).is_success

    def resume(self) -> None:
        self.daemon.call("POST", f"{self.path}/resume")

    def change(self, **fields: Any) -> None:
        self.daemon.call("PATCH", self.path, json=fields)

    def wait_for_requests(self, names: Collection[str]) -> None:
        """Wait until these trials were asked to stop."""
        until(lambda: set(names) <= {trial["parameters"]["x"] for trial in self._listed() if trial["stopRequest"]})

    def wait(self, *statuses: str) -> Json:
        return self.daemon.wait(self.id, *statuses)

    def wait_for(self, holds: Callable[[Json], object]) -> Json:
        return self.daemon.wait_for(self.id, holds)

    def wait_for_count(self, **counts: int) -> Json:
        return self.wait_for(lambda state: {**state["counts"], **counts} == state["counts"])

    def _listed(self) -> list[Json]:
        return self.daemon.call("GET", f"{self.path}/trials")["trials"]  # type: ignore[no-any-return]

    def log(self) -> str:
        return (self.daemon.data / self.id / "log" / "nnimanager.log").read_text()


def listed_tuner(notes: Path, names: Sequence[str]) -> Json:
    """A tuner that proposes `names` in order, and notes what it receives."""
    arguments = {"values": list(names), "notes": str(notes)}
    return {"className": "listed_tuner.ListedTuner", "codeDirectory": ".", "classArgs": arguments}


def stern_assessor(**arguments: Any) -> Json:
    """An assessor that finds every trial bad; with `gate`, after that file exists."""
    return {"className": "stern_assessor.SternAssessor", "codeDirectory": ".", "classArgs": arguments}
