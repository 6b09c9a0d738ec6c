"""`Experiment` as programs for NNI know it: started by nni-manager, asked over NNI's API at its port."""

from __future__ import annotations

import atexit
import json
import time
from enum import Enum
from functools import wraps

from nni.experiment.config import ExperimentConfig
from nni.experiment.data import TrialJob, TrialMetricData, TrialResult
from nni.experiment.management import generate_experiment_id, is_valid_experiment_id
from nni.runtime.log import say

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Dict, List

#: Seconds that a call may take.
_TIMEOUT_S = 60.0
#: Seconds before a daemon that broke off is asked again.
_AGAIN_S = 1.0


class RunMode(Enum):
    """Whether the experiment is stopped when the program ends."""

    Background = "background"
    Foreground = "foreground"
    Detach = "detach"


class _WithId:
    """A method that programs for NNI 2 call on the class, with the id of an experiment."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, experiment: Experiment | None, owner: type) -> Any:
        if experiment is not None:
            return self._method.__get__(experiment)

        @wraps(self._method)
        def called_on_class(experiment_id: Any, *values: Any, **named: Any) -> Any:
            if not isinstance(experiment_id, str):  # the experiment itself, as an unbound method takes it
                return self._method(experiment_id, *values, **named)
            made = owner(None, id=experiment_id)
            ended = self._method(made, *values, **named)
            return made if ended is None else ended

        return called_on_class


class Experiment:
    """`config_or_platform`: an ExperimentConfig, or the name of a training service for an empty one, to be filled in as
    `config`. `id`: an id of your choice, or one of an experiment to resume or view. `config` and `training_service` are
    NNI 2's names of the first."""

    def __init__(
        self, config_or_platform: Any = None, id: str | None = None, *, config: Any = None, training_service: Any = None
    ) -> None:
        if config_or_platform is None:
            config_or_platform = training_service if config is None else config
        is_config = config_or_platform is None or isinstance(config_or_platform, ExperimentConfig)
        self.config = config_or_platform if is_config else ExperimentConfig(config_or_platform)
        if id is not None and not is_valid_experiment_id(id):
            raise ValueError(
                "Invalid experiment ID: {}. It has at most 32 letters, digits, hyphens and underscores".format(id)
            )
        self.id = id or generate_experiment_id()
        self.port: int | None = None
        self.url_prefix: str | None = None
        self._manager: Any = None

    def start(self, port: int = 8080, debug: bool = False, run_mode: RunMode = RunMode.Background) -> None:
        """Starts the experiment, and returns. It is stopped when the program ends, unless `run_mode` is Detach."""
        fields = self.config._sent()
        fields.update({"debug": True} if debug else {})
        manager = _nni_manager().Experiment(fields, directory=self.config._directory)
        manager.start(port=port, url_prefix=self.url_prefix or "", id=self.id)
        self._begun(manager, port, run_mode)

    def run(self, port: int = 8080, wait_completion: bool = True, debug: bool = False) -> bool | None:
        """Starts the experiment and waits until it is done: True, or False when it stopped on an error. Ctrl-C stops
        it; otherwise `stop` does, or the end of the program."""
        return self._going(lambda: self.start(port, debug), wait_completion)

    @_WithId
    def resume(self, port: int = 8080, wait_completion: bool = True, debug: bool = False) -> bool | None:
        """Goes on with the stopped experiment `id`; otherwise as `run`.

        ``Experiment.resume(experiment_id="ID")`` does the same, as in NNI 2. It returns the experiment if it does not
        wait for the end.
        """
        return self._going(lambda: self._resume(port), wait_completion)

    def run_or_resume(self, port: int = 8080, wait_completion: bool = True, debug: bool = False) -> bool | None:
        """`resume` where the experiment exists, else `run`."""
        return (self.resume if self.has_checkpoint() else self.run)(port, wait_completion, debug)

    def load_checkpoint(self) -> None:
        """Takes the config of the experiment with this id, unless `config` is set."""
        self._take_config(_nni_manager().Experiment.connect(self.id))

    def save_checkpoint(self) -> None:
        """Does nothing: the daemon has stored everything."""

    def has_checkpoint(self) -> bool:
        """Whether there is an experiment with this id."""
        from nni_manager.domain.errors import NotFound

        try:
            return _nni_manager().Experiment.connect(self.id).id == self.id
        except NotFound:
            return False

    @_WithId
    def view(self, port: int = 8080, non_blocking: bool = False) -> Experiment:
        """Opens the stopped experiment `id` for reading; blocks until Ctrl-C, unless `non_blocking`.

        ``Experiment.view(experiment_id="ID")`` does the same, as in NNI 2.
        """
        manager = _nni_manager().Experiment.view(self.id, port=port, url_prefix=self.url_prefix or "")
        self._begun(manager, port, RunMode.Detach)
        if not non_blocking:
            try:
                self._wait_completion()
            except KeyboardInterrupt:
                pass
            finally:
                self.stop()
        return self

    def stop(self) -> None:
        """Stops the experiment; returns when its trials have ended."""
        atexit.unregister(self.stop)
        if self._manager is not None:
            self._manager.stop()
        self.port = self._manager = None

    @classmethod
    def connect(cls, port: int) -> Experiment:
        """The experiment that has this port."""
        self = cls()
        self.port = port
        self.id = self.get_experiment_profile()["id"]
        self._manager = _nni_manager().Experiment.connect(self.id)
        return self

    # What is known of it

    def get_status(self) -> str:
        return self._get("/check-status")["status"]

    def get_trial_job(self, trial_job_id: str) -> TrialJob:
        return TrialJob(**self._get("/trial-jobs/" + trial_job_id))

    def list_trial_jobs(self) -> List[TrialJob]:
        return [TrialJob(**one) for one in self._get("/trial-jobs")]

    def get_job_statistics(self) -> Any:
        return self._get("/job-statistics")

    def get_job_metrics(self, trial_job_id: str | None = None) -> Dict[str, List[TrialMetricData]]:
        """Results by trial."""
        found: Dict[str, List[TrialMetricData]] = {}
        for one in self._get("/metric-data" + ("/" + trial_job_id if trial_job_id else "")):
            found.setdefault(one["trialJobId"], []).append(TrialMetricData(**one))
        return found

    def get_experiment_profile(self) -> Dict[str, Any]:
        return self._get("/experiment")

    def get_experiment_metadata(self, exp_id: str) -> Dict[str, Any]:
        return next((one for one in self.get_all_experiments_metadata() if one["id"] == exp_id), {})

    def get_all_experiments_metadata(self) -> List[Dict[str, Any]]:
        return self._get("/experiments-info")

    def export_data(self) -> List[TrialResult]:
        return [TrialResult(**one) for one in self._get("/export-data")]

    # Changes

    def update_trial_concurrency(self, value: int) -> None:
        self._update("TRIAL_CONCURRENCY", "trialConcurrency", value)

    def update_max_experiment_duration(self, value: str) -> None:
        self._update("MAX_EXEC_DURATION", "maxExperimentDuration", value)

    def update_search_space(self, value: Any) -> None:
        self._update("SEARCH_SPACE", "searchSpace", value)

    def update_max_trial_number(self, value: int) -> None:
        self._update("MAX_TRIAL_NUM", "maxTrialNumber", value)

    def kill_trial_job(self, trial_job_id: str) -> None:
        self._call("DELETE", "/trial-jobs/" + trial_job_id)

    # Helpers

    def _begun(self, manager: Any, port: int, run_mode: RunMode) -> None:
        self._manager, self.id = manager, manager.id
        self._take_config(manager)
        self.port = (manager.state["endpoint"] or {}).get("port", port)
        if run_mode is not RunMode.Detach:
            atexit.register(self.stop)
        say("Experiment ID: {}".format(self.id))
        say("Web portal URLs: http://127.0.0.1:{}/{}".format(self.port, self.url_prefix or ""))

    def _take_config(self, manager: Any) -> None:
        if self.config is None:
            self.config = ExperimentConfig(**manager.state["config"])

    def _resume(self, port: int) -> None:
        manager = _nni_manager().Experiment.connect(self.id)
        manager.resume(port=port, url_prefix=self.url_prefix or "")
        self._begun(manager, port, RunMode.Background)

    def _going(self, begin: Any, wait_completion: bool) -> bool | None:
        try:
            begin()
            return self._wait_completion() if wait_completion else None
        except KeyboardInterrupt:
            self.stop()
            return None

    def _wait_completion(self) -> bool:
        from nni_manager.client.connection import Unreachable

        while True:
            try:
                for state in self._manager.events():
                    is_good = _verdict(state)
                    if is_good is not None:
                        return is_good
            except Unreachable:  # a daemon that is started again goes on
                pass
            time.sleep(_AGAIN_S)

    def _update(self, kind: str, name: str, value: Any) -> None:
        profile = self.get_experiment_profile()
        profile["params"][name] = value
        self._call("PUT", "/experiment?update_type=" + kind, profile)

    def _get(self, path: str) -> Any:
        return json.loads(self._call("GET", path))

    def _call(self, method: str, path: str, body: Any = None) -> bytes:
        """Raises RuntimeError with the daemon's sentence, OSError when it cannot be reached."""
        if self.port is None:
            raise RuntimeError("the experiment is not running: call start() or run() first")
        from http.client import HTTPConnection

        connection = HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_S)
        prefix = "/" + self.url_prefix.strip("/") if self.url_prefix else ""
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, prefix + "/api/v1/nni" + path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError("{} {}: {}".format(method, path, content.decode("utf-8", "replace")))
        return content


def _verdict(state: Any) -> bool | None:
    """What waiting for an experiment ends with at this state; None: it goes on. What stopped it is printed."""
    from nni_manager.programs.waiting import judge

    if state["status"] in ("DONE", "STOPPED"):
        return True
    end = None if state["status"] == "STOPPING" else judge(state)
    if end is None:
        return None
    say(end.text)
    return False


def _nni_manager() -> Any:
    """The package. Raises ImportError with a message."""
    import sys

    try:
        import nni_manager
    except ImportError as error:
        raise ImportError(
            "nni.experiment of the stand-in starts experiments with nni-manager, which {} does not have ({}): run "
            "`pip install nni-manager` there, or install nni".format(sys.executable, error)
        ) from error
    return nni_manager
