"""The class that user advisors extend: tuner and assessor in one."""

from __future__ import annotations

from nni.recoverable import Recoverable, missing
from nni.runtime.tuner_command_channel import CommandType, TunerCommandChannel

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Optional

__all__ = ["CommandType", "MsgDispatcherBase"]


class MsgDispatcherBase(Recoverable):
    """Is told what happens in the experiment, and sends commands. Calls come one at a time.

    A subclass overrides the methods whose names begin with ``handle_``; `send` is for its answers.
    """

    def __init__(self, command_channel_url: Optional[str] = None) -> None:
        self.stopping = False
        self._channel = TunerCommandChannel(command_channel_url or "")

    def send(self, command: CommandType, data: Any) -> None:
        """Sends a command with its data, JSON text, such as `CommandType.NewTrialJob` with ``parameter_id`` and
        ``parameters``."""
        self._channel._send(command, data)

    def is_created_in_previous_exp(self, param_id: object) -> bool:
        """Whether an earlier process proposed these parameters: such results come by `handle_import_data` alone."""
        return False

    def handle_ping(self, data: Any) -> None:
        """Does nothing."""

    def handle_initialize(self, data: Any) -> None:
        """Takes the search space, first of all; to be answered with `CommandType.Initialized`."""
        raise missing(self, "handle_initialize")

    def handle_request_trial_jobs(self, data: int) -> None:
        """Requests a number of trials, each a `CommandType.NewTrialJob`, now or later."""
        raise missing(self, "handle_request_trial_jobs")

    def handle_update_search_space(self, data: Any) -> None:
        """Takes another search space."""
        raise missing(self, "handle_update_search_space")

    def handle_import_data(self, data: Any) -> None:
        """Takes results of earlier trials: a list of mappings with ``parameter`` and ``value``."""
        raise missing(self, "handle_import_data")

    def handle_add_customized_trial(self, data: Any) -> None:
        """Takes parameters that a person gave; not called here."""
        raise missing(self, "handle_add_customized_trial")

    def handle_report_metric_data(self, data: Any) -> None:
        """Takes a result: ``parameter_id``, ``trial_job_id``, ``type``, ``sequence`` and, as JSON text, ``value``."""
        raise missing(self, "handle_report_metric_data")

    def handle_trial_end(self, data: Any) -> None:
        """Takes a trial's end: ``trial_job_id``, ``event`` (its status) and ``hyper_params``, JSON text of what was
        sent for it."""
        raise missing(self, "handle_trial_end")
