"""The class that user tuners extend."""

from __future__ import annotations

from nni.recoverable import Recoverable, missing

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, List


class NoMoreTrialError(Exception):
    """Raised by a tuner that has no more parameters to propose."""

    def __init__(self, ErrorInfo: str = "Search space fully explored") -> None:
        super().__init__(ErrorInfo)
        self.errorinfo = ErrorInfo


class Tuner(Recoverable):
    """Proposes parameters and learns from results. Calls come one at a time.

    A subclass overrides `update_search_space`, `receive_trial_result`, and `generate_parameters` or
    `generate_multiple_parameters`. Every method takes keyword arguments that it does not know.
    """

    def update_search_space(self, search_space: Any) -> None:
        """Takes the search space as written in the configuration; called first, and again when it is changed."""
        raise missing(self, "update_search_space")

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        """Parameters for the trial with number `parameter_id`; usually a mapping, but any JSON is allowed.

        Raises NoMoreTrialError when there are none, now or ever.
        """
        raise missing(self, "generate_parameters")

    def generate_multiple_parameters(self, parameter_id_list: List[int], **kwargs: Any) -> List[Any]:
        """Parameters for each id in turn; a list that is too short ends the proposals."""
        proposals = []
        for parameter_id in parameter_id_list:
            try:
                proposals.append(self.generate_parameters(parameter_id, **kwargs))
            except NoMoreTrialError:
                break
        return proposals

    def receive_trial_result(self, parameter_id: int, parameters: Any, value: Any, **kwargs: Any) -> None:
        """Takes a final result: `value` exactly as the trial reported it, see `nni.utils.extract_scalar_reward`."""
        raise missing(self, "receive_trial_result")

    def trial_end(self, parameter_id: int, success: bool, **kwargs: Any) -> None:
        """Notes that a trial ended; `success` is False unless it succeeded."""

    def import_data(self, data: List[Any]) -> None:
        """Takes results of earlier trials: a list of mappings with ``parameter`` and ``value``."""

    def _accept_customized_trials(self, accept: bool = True) -> None:
        # Results of parameters that a person gave are kept from a tuner until it calls this.
        self._accept_customized = accept
