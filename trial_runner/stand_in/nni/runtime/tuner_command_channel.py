"""The commands between NNI's manager and an advisor."""

from __future__ import annotations

from enum import Enum

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any


class CommandType(Enum):
    """The commands, and NNI's words for them on the wire."""

    Initialize = "IN"
    RequestTrialJobs = "GE"
    ReportMetricData = "ME"
    UpdateSearchSpace = "SS"
    ImportData = "FD"
    AddCustomizedTrialJob = "AD"
    TrialEnd = "EN"
    Terminate = "TE"
    Ping = "PI"

    Initialized = "ID"
    NewTrialJob = "TR"
    SendTrialJobParameter = "SP"
    NoMoreTrialJobs = "NO"
    KillTrialJob = "KI"
    Error = "ER"


class TunerCommandChannel:
    """Where an advisor sends its commands. The process that runs advisors puts another one in its place."""

    def __init__(self, url: str = "") -> None:
        self.url = url

    def connect(self) -> None:
        """Does nothing: the socket does not exist."""

    def disconnect(self) -> None:
        """Does nothing."""

    def _send(self, command_type: CommandType, data: Any) -> None:
        raise RuntimeError("This advisor runs outside an experiment, so that nothing takes its commands.")
