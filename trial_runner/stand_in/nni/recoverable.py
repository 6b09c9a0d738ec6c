"""The base of tuners, assessors and advisors: a checkpoint of their state."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


class Recoverable:
    """The state of an algorithm, kept beyond its process."""

    recovered_max_param_id = -1
    recovered_trial_params: Dict[int, Any] = {}  # noqa: RUF012 - replaced, never changed

    def load_checkpoint(self) -> None:
        """Restores what `save_checkpoint` wrote; called when an experiment is resumed."""

    def save_checkpoint(self) -> None:
        """Writes the state to `get_checkpoint_path`."""

    def get_checkpoint_path(self) -> Optional[str]:
        """The folder for the state; None when the experiment has none."""
        folder = os.environ.get("NNI_CHECKPOINT_DIRECTORY")
        return folder if folder and os.path.isdir(folder) else None

    def recover_parameter_id(self, data: Any) -> int:
        """Takes note of earlier trials, mappings or JSON text with ``parameter_id`` and ``parameters``; returns the
        highest id, 0 at least."""
        from json import loads

        trials = [loads(one) if isinstance(one, str) else one for one in (data if isinstance(data, list) else [data])]
        known = {one["parameter_id"]: one["parameters"] for one in trials if isinstance(one["parameter_id"], int)}
        self.recovered_trial_params = {**self.recovered_trial_params, **known}
        self.recovered_max_param_id = max([0, *known])
        return self.recovered_max_param_id

    def is_created_in_previous_exp(self, param_id: Optional[int]) -> bool:
        """Whether `recover_parameter_id` has been given these parameters or later ones."""
        return param_id is not None and param_id <= self.recovered_max_param_id

    def get_previous_param(self, param_id: int) -> Any:
        """The parameters that `recover_parameter_id` has been given."""
        return self.recovered_trial_params[param_id]

    def _on_exit(self) -> None:
        pass

    def _on_error(self) -> None:
        pass


def missing(algorithm: object, method: str) -> NotImplementedError:
    """The error of a class that lacks a method; no method of the base: users' classes have names of their own."""
    return NotImplementedError("{} has to define {}.".format(type(algorithm).__name__, method))
