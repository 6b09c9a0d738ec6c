"""Whether a built-in assessor can judge what trials report: numbers, or objects with a number under ``default``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from nni_manager.domain.experiment import ExperimentWarning, LiveSpec
from nni_manager.domain.metrics import default_number

log = logging.getLogger(__name__)

#: Number of intermediate results of a running trial after which no number is expected.
_FEW = 3


class JudgeableResults:
    """Checks the first trial with intermediate results; `warn`: called once, if none can be judged."""

    def __init__(self, spec: LiveSpec, warn: Callable[[ExperimentWarning], None]) -> None:
        self._spec = spec
        self._warn = warn
        self._is_known = False

    def look(self, trial_id: str, values: Sequence[object], *, has_ended: bool) -> None:
        assessor = self._spec.now.assessor
        if self._is_known or assessor is None or assessor.class_name or len(values) < (1 if has_ended else _FEW):
            return
        self._is_known = True
        if any(default_number(value) is not None for value in values):
            return
        message = (
            f"{assessor.name} cannot judge trials: intermediate results of trial {trial_id} have no number under the"
            " key `default`. Report a number, or a dictionary with a number under `default`"
        )
        log.warning("%s", message)
        self._warn(ExperimentWarning(code="NOTHING_TO_JUDGE", message=message))
