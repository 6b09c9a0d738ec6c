"""The channel that the upstream `nni` 3.x SDK imports when ``NNI_TRIAL_COMMAND_CHANNEL`` names it.

It writes the outbox instead of speaking HTTP from the user's process, so that a manager that restarts is not noticed.
"""

from __future__ import annotations

import nni
import nni_outbox
from nni.runtime.trial_command_channel import TrialCommandChannel

_KINDS = {"PERIODICAL": nni_outbox.INTERMEDIATE, "FINAL": nni_outbox.FINAL}


class OutboxChannel(TrialCommandChannel):  # type: ignore[misc]  # untyped, of NNI
    """Parameters from the trial's folder, results to its outbox. Made at the SDK's first call."""

    def __init__(self) -> None:
        nni_outbox.settle()

    def receive_parameter(self) -> object:
        """The trial's parameter record, the same at every call. Raises RuntimeError when there is none."""
        return nni.load(nni_outbox.read_record())

    def send_metric(self, type: str, parameter_id: int | None, trial_job_id: str, sequence: int, value: object) -> None:
        """Appends one result. The outbox and its line identify the trial and the result."""
        try:
            nni_outbox.report(_KINDS[type], value)
        except TypeError:  # the SDK also serialises what it traced, and whatever else can be pickled
            nni_outbox.report_text(_KINDS[type], nni.dump(value))
