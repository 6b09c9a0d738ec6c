"""The process that NNI's launchers start instead of their manager, one for each experiment.

It ends when the experiment is closed. SIGTERM and SIGINT stop only this experiment. After SIGKILL, the experiment keeps
running, because the daemon does not depend on this process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from nni_manager.domain.errors import InvalidInput, NniManagerError, NotFound
from nni_manager.domain.text import printable
from nni_manager.programs.hook import arguments
from nni_manager.programs.hook.arguments import Arguments
from nni_manager.programs.hook.front import Front

if TYPE_CHECKING:
    from nni_manager.client.caller import ChosenDaemon
    from nni_manager.client.manager_client import ManagerClient

#: What ended the wait: the experiment is closed, or a signal came.
_CLOSED, _SIGNAL = "closed", "signal"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Seconds between two checks for the next daemon, which others start.
_LOOK_S = 2.0


def main(words: list[str]) -> int:
    """The exit code."""
    try:
        given = arguments.read(words)
        front = Front(given.port, given.url_prefix)  # first: NNI waits three seconds for it
        return _run(given, front)
    except NniManagerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(given: Arguments, front: Front) -> int:
    launch = Launch(given)
    if not front.serve(launch.start):
        return 1
    print(f"Experiment {given.experiment_id} is running.", flush=True)
    if launch.wait() == _SIGNAL:
        launch.stop()
    return 0


class Launch:
    """An experiment, from its launcher's request to its end. SIGTERM and SIGINT stop it."""

    def __init__(self, given: Arguments) -> None:
        self._given = given
        self._news: SimpleQueue[str] = SimpleQueue()

    def start(self, config: Any) -> dict[str, Any]:
        """Create, resume or view the experiment; return NNI's answer. Raises NniManagerError."""
        if not isinstance(config, dict):
            raise InvalidInput("the config must be a JSON object")
        for number in _SIGNALS:  # from now on, there is an experiment to stop
            signal.signal(number, lambda *_: self._news.put(_SIGNAL))
        try:
            {"create": self._create, "resume": self._open_again, "view": self._open_again}[self._given.action](config)
        except NniManagerError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            raise
        return {"experiment_id": self._given.experiment_id}

    def wait(self) -> str:
        """Wait until the experiment is closed, or a signal requests its stop; return which."""
        threading.Thread(target=self._follow, daemon=True).start()
        return self._news.get()

    def stop(self) -> None:
        """Stops the experiment; returns when its trials have ended. Raises NniManagerError."""
        from nni_manager.client.daemon_end import waiting_for_daemon_end

        client = self._client()
        with waiting_for_daemon_end(client), suppress(NotFound):
            client.stop(self._given.experiment_id)

    # The actions

    def _create(self, config: dict[str, Any]) -> None:
        _require_tuner(self._given, config)
        import json

        from nni_manager.programs.request import Source, prepare

        source = Source(
            text=json.dumps(arguments.as_written(config)),
            directory=str(config.get("trialCodeDirectory") or self._given.directory),
            file="the config",
            python=self._given.python,
        )
        client, fields = prepare(source, self._place(), self._client, _warn)
        is_debug = self._given.is_debug and not config.get("debug")
        client.create(**fields, id=self._given.experiment_id, endpoint=self._endpoint, debug=is_debug)

    def _open_again(self, config: dict[str, Any]) -> None:
        client = self._client()
        verb = client.resume if self._given.action == "resume" else client.view
        with _elsewhere(client, self._given) as directory:
            verb(self._given.experiment_id, endpoint=self._endpoint, working_directory=directory)

    @property
    def _endpoint(self) -> dict[str, Any]:
        return {"port": self._given.port, "urlPrefix": self._given.url_prefix}

    # The daemon

    def _place(self) -> ChosenDaemon:
        from nni_manager.client import caller

        place = caller.choose(None, None)
        if place.is_remote:
            raise InvalidInput(
                "NNI_MANAGER_ADDRESS names a manager on another machine, which NNI's launchers cannot reach: unset it,"
                " or use `nnictl` of nni-manager"
            )
        return place

    def _client(self) -> ManagerClient:
        """A client of the daemon, which is started if none runs."""
        from nni_manager.client import caller

        return caller.connect(self._place())

    def _follow(self) -> None:
        """Wait in a thread until the experiment is closed."""
        while not self._is_closed():
            threading.Event().wait(_LOOK_S)
        self._news.put(_CLOSED)

    def _is_closed(self) -> bool:
        """Whether the experiment is closed, after its states have ended. Starts no daemon."""
        from nni_manager.app import closed_experiments
        from nni_manager.client.daemon import find_running
        from nni_manager.client.manager_client import ManagerClient

        try:
            data_directory = self._place().data_directory
            if (address := find_running(data_directory)) is None:  # it ends with its last experiment
                return closed_experiments.are_all_at_rest(data_directory)
            client = ManagerClient(address)
            for state in client.events(self._given.experiment_id):
                if state["status"] == "STOPPED":
                    return True
            return bool(client.experiment(self._given.experiment_id)["status"] == "STOPPED")
        except NotFound:  # it was deleted
            return True
        except NniManagerError:
            return False


@contextmanager
def _elsewhere(client: ManagerClient, given: Arguments) -> Iterator[str | None]:
    """The parent of the folder, if the daemon does not know the experiment; else None."""
    try:
        client.experiment(given.experiment_id)
        yield None
    except NotFound:
        yield given.directory


def _require_tuner(given: Arguments, config: dict[str, Any]) -> None:
    if given.tuner_channel or config.get("experimentType", "hpo") != "hpo":
        raise InvalidInput(
            "experimentType: only experiments with a search space (`hpo`) run here; for NNI's architecture search,"
            " start another shell without the hook"
        )


def _warn(sentences: Any) -> None:
    for sentence in sentences:
        print(printable(f"warning: {sentence}"), file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # closing the terminal does not stop the experiment
    os.chdir("/")  # it was started in the folder of the program
    sys.exit(main(sys.argv[1:]))
