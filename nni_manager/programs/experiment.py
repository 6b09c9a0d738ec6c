"""An experiment, from a program: `Experiment`."""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from nni_manager.client import caller, endpoints
from nni_manager.domain.errors import Conflict, InvalidInput, NniManagerError
from nni_manager.domain.text import printable
from nni_manager.programs import configuration, following, records, request
from nni_manager.programs.configuration import Config
from nni_manager.programs.plain_values import plain
from nni_manager.programs.records import Best, Trial, Trials

if TYPE_CHECKING:
    from nni_manager.client.caller import ChosenDaemon
    from nni_manager.client.manager_client import ManagerClient
    from nni_manager.programs.spelling import Spelling
    from nni_manager.programs.waiting import States

#: Held briefly by `start` of any experiment. With a lock of its own, an experiment could not be copied or pickled.
_STARTS = threading.Lock()


class Experiment:
    """An experiment: its settings before the start, and a handle of it afterwards.

    ::

        experiment = Experiment(
            search_space={"x": {"_type": "uniform", "_value": [-10, 10]}},
            trial_command="python3 trial.py",
            trial_concurrency=4,
            max_trial_number=100,
            tuner={"name": "TPE", "class_args": {"optimize_mode": "minimize"}},
            training_service={"platform": "local"},
        )
        experiment.run()
        print(experiment.best)

    `config`: path of an experiment file, its text, or its fields. `fields` override it, in Python's spelling or the
    file's. `directory`: base of relative paths. `data_dir`: the daemon's data directory; `manager`: the URL of a
    manager on another machine (`token_file`: its token); default: as for the command line. The daemon is started if it
    does not run. Invalid fields raise ConfigInvalid, with a message for each, at the start of the experiment.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        manager: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        **fields: Any,
    ) -> None:
        self._place = _place(data_dir, manager, token_file)
        self._source = configuration.source(config, fields, directory)
        self._id = ""
        self._is_starting = False
        #: References to secrets in the config that was sent to a manager on another machine.
        self._own_references: frozenset[str] = frozenset()

    @classmethod
    def connect(
        cls,
        id: str,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        manager: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
    ) -> Self:
        """An existing experiment. Raises NotFound."""
        self = cls(data_dir=data_dir, manager=manager, token_file=token_file)
        self._id = str(self._client().experiment(id)["id"])
        return self

    @classmethod
    def view(
        cls,
        id: str,
        *,
        working_directory: str | os.PathLike[str] | None = None,
        port: int | None = None,
        url_prefix: str = "",
        **place: Any,
    ) -> Self:
        """Open a stopped experiment for reading.

        `working_directory`: parent of a moved folder. `port`, `url_prefix`: as in `start`; `place`: as in `connect`.
        """
        self = cls(**place)
        folder = None if working_directory is None else os.path.abspath(os.path.expanduser(working_directory))
        self._client().view(id, working_directory=folder, endpoint=self._endpoint(port, url_prefix))
        self._id = id
        return self

    # Life

    def start(
        self,
        *,
        port: int | None = None,
        url_prefix: str = "",
        send_code: bool = False,
        id: str = "",
        progress: bool = True,
    ) -> Self:
        """Create the experiment; return when it is stored and active.

        `port`: a separate port for its page and NNI's API; 0: any. Default: the page is on the daemon's service, or on
        the first free port from 8080. `send_code`: the daemon keeps a copy of the base folder of relative paths, which
        you may then remove. `id`: an id of your choice. `progress`: print the address of the page to stderr.

        Raises ConfigInvalid, InvalidInput, Conflict if it was already started or the id is taken, NniManagerError.
        """
        with self._starting(), _in_spelling(self._source.spelling):
            source = replace(self._source, is_sent=send_code)
            client, fields = request.prepare(source, self._place, self._client, self._warn)
            self._own_references = frozenset(fields.get("secrets", ()))
            self._id = client.create(**fields, endpoint=self._endpoint(port, url_prefix), id=id)
        state = self.state
        if progress and (page := endpoints.page(state, client, self._place)):
            print(printable(f"Experiment {self._id}: {page}"), file=sys.stderr)
        self._warn(warning["message"] for warning in state["warnings"])
        return self

    def run(self, *, port: int | None = None, url_prefix: str = "", progress: bool = True) -> Self:
        """Start the experiment, wait until it is done, and close it. Arguments and errors: `start`, `wait`."""
        self.start(port=port, url_prefix=url_prefix, progress=progress)
        self.wait(progress=progress)
        self.stop()
        return self

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> bool:
        """Wait until the experiment is done; False after `timeout` seconds.

        `progress`: show it, with rich or tqdm if one is installed. Ctrl-C asks whether to stop the experiment, then
        raises KeyboardInterrupt. Raises ExperimentFailed.
        """
        # imported above, because Ctrl-C during an import here would leave the experiment running
        return following.wait(self, timeout, shown=progress)

    def stop(self) -> None:
        """Stop the experiment, unless it is stopped; return when its trials have ended. It can be resumed."""
        self._followed.stop()

    def resume(self, *, port: int | None = None, url_prefix: str = "", secrets: Collection[str] | None = ()) -> Self:
        """Open the stopped experiment again, or continue one on hold.

        `port`, `url_prefix`: as in `start`. `secrets`: references, such as ``${TOKEN}`` or ``file:/path``, that a
        manager on another machine may get, in addition to those of this object's config; None: it keeps its secrets.
        Raises InvalidInput if it asks for others.
        """
        client = self._client()
        found = {} if secrets is None else self._secrets(client, secrets)
        client.resume(self.id, secrets=found.get("secrets"), endpoint=self._endpoint(port, url_prefix))
        return self

    def _secrets(self, client: ManagerClient, given: Collection[str]) -> dict[str, dict[str, str]]:
        def allow(asked: Sequence[str]) -> Collection[str]:
            if others := [one for one in asked if one not in self._own_references and one not in given]:
                raise request.refuse_secrets(others, f"allow them with secrets={others!r}, or keep its own with None")
            return asked

        return request.secrets_of_experiment(client, self.id, os.environ, allow)

    def change(self, **fields: Any) -> None:
        """Change limits, concurrency or search space: ``change(max_trial_number=200)``; None removes a limit."""
        found, spelling = configuration.in_file_spelling(fields)
        with _in_spelling(spelling):
            self._client().change(self.id, found)

    def delete(self) -> None:
        """Removes the stopped experiment and its folder."""
        self._client().delete(self.id)

    # Information

    @property
    def is_started(self) -> bool:
        """Whether it was created and has an id."""
        return bool(self._id)

    @property
    def id(self) -> str:
        """Its id. Raises Conflict before it is started."""
        if not self._id:
            raise Conflict("the experiment was not started yet; call start() or run()")
        return self._id

    @property
    def state(self) -> dict[str, Any]:
        """The API's description of it, see `docs/rest.md`."""
        return self._client().experiment(self.id)

    @property
    def status(self) -> str:
        """``RUNNING``, ``NO_MORE_TRIAL``, ``DONE``, ``ERROR``, ``STOPPED`` …"""
        return str(self.state["status"])

    @property
    def best(self) -> Best | None:
        """The best trial so far; None if no trial has a finite final result that satisfies the constraints."""
        found = self.state["best"]
        if found is None:
            return None
        return Best(value=found["value"], parameters=found["parameters"], trial_id=found["trialId"])

    def trials(self, status: str | None = None) -> Trials:
        """Its trials, or those with a `status`."""
        return records.trials(self._client().all_trials(self.id, status=status))

    def trial(self, trial_id: str) -> Trial:
        """A trial. Raises NotFound."""
        return records.trial(self._client().trial(self.id, trial_id))

    def to_frame(self, status: str | None = None) -> Any:
        """Its trials as a pandas DataFrame."""
        return self.trials(status).to_frame()

    def intermediate_results(self, trial_id: str) -> list[Any]:
        """The intermediate results of all attempts of a trial, in order."""
        found = _pages(self._client(), self.id, trial_id)
        return [json.loads(one["result"]) for one in found]

    def log(self, trial_id: str, name: str = "stdout") -> str:
        """A trial's ``stdout``, ``stderr`` or ``trial.log``. Raises NotFound."""
        return self._client().trial_log(self.id, trial_id, name).data.decode(errors="replace")

    def add_trial(self, parameters: Mapping[str, Any]) -> str:
        """Add a trial with your own parameters; return its id.

        Each dimension of the search space needs a value. Values outside the search space are used with a warning.
        Raises InvalidInput for unknown and missing names and for values of a wrong type, Conflict if no more trials may
        start.
        """
        from nni_manager.programs import custom_parameters

        client = self._client()
        values, outside = custom_parameters.checked(parameters, client.experiment(self.id)["config"])
        _warn(outside)
        return str(client.add_trial(self.id, values)["id"])

    def kill_trial(self, trial_id: str) -> None:
        """Request the end of a trial."""
        self._client().kill_trial(self.id, trial_id)

    def events(self, *, may_start: bool = True) -> States:
        """Its states, now and after every change, until it is closed or the daemon ends.

        Any thread may end the stream with its `close`. `may_start`: as in `goes_on`. Raises Unreachable if the daemon
        dies.
        """
        return self._followed.events(may_start=may_start)

    def goes_on(self, *, may_start: bool) -> bool:
        """See `following.FollowedExperiment.goes_on`."""
        return self._followed.goes_on(may_start=may_start)

    def broken_off(self) -> str:
        """Why the stream of its states ended, one sentence. Starts no daemon."""
        return self._followed.broken_off()

    def __enter__(self) -> Self:
        return self if self.is_started else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Experiment {self._id or 'not started'}>"

    def _repr_html_(self) -> str:
        from nni_manager.programs import html

        if not self._id:
            return "<p>This experiment was not started yet.</p>"
        state = self.state
        return html.experiment(state, self.trials(), endpoints.page(state, self._client(), self._place))

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """Prevent another thread from creating a second experiment. Raises Conflict."""
        with _STARTS:
            if self._id or self._is_starting:
                what = f"experiment {self._id} was already started" if self._id else "the experiment is starting"
                raise Conflict(f"{what}; create another Experiment for another run")
            self._is_starting = True
        try:
            yield
        finally:
            self._is_starting = False

    def _endpoint(self, port: int | None, url_prefix: str) -> dict[str, Any]:
        return endpoints.wish(self._place, plain(port, "port"), url_prefix)

    def _warn(self, messages: Iterable[str]) -> None:
        """Warns about the config, in the program's spelling."""
        spelling = self._source.spelling
        _warn(messages if spelling is None else map(spelling.sentence, messages))

    @property
    def _followed(self) -> following.FollowedExperiment:
        return following.FollowedExperiment(self.id, self._client, partial(caller.find, self._place))

    def _client(self) -> ManagerClient:
        """The daemon's client, looked up each time, because a daemon ends with its last experiment and may return."""
        return caller.connect(self._place)


def _place(
    data_dir: str | os.PathLike[str] | None, manager: str | None, token_file: str | os.PathLike[str] | None
) -> ChosenDaemon:
    if data_dir is not None and manager is not None:
        raise NniManagerError("give either manager or data_dir, not both")
    from pathlib import Path

    directory = None if data_dir is None else os.fspath(data_dir)
    return caller.choose(directory, manager, None if token_file is None else Path(token_file))


def _pages(client: ManagerClient, id: str, trial_id: str) -> Iterator[dict[str, Any]]:
    after = 0
    while page := client.metrics(id, trial=trial_id, type="PERIODICAL", after=after):
        yield from page
        after = page[-1]["id"]


@contextmanager
def _in_spelling(spelling: Spelling | None) -> Iterator[None]:
    """Raise errors with the program's names of fields."""
    try:
        yield
    except InvalidInput as error:
        raise (error if spelling is None else spelling.refusal(error)) from None


def _warn(messages: Iterable[str]) -> None:
    for message in messages:
        warnings.warn(printable(message), stacklevel=_depth() + 1)


def _depth() -> int:
    """The number of frames of this package between a function that calls this one and the program."""
    frame, depth = sys._getframe(1), 0
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("nni_manager."):
        frame, depth = frame.f_back, depth + 1
    return depth
