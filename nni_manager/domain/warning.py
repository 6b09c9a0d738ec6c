"""What a user should know although nothing is refused."""

from __future__ import annotations

from dataclasses import dataclass

from nni_manager.domain.errors import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentWarning:
    """One warning, as every way out shows it: REST, page, command line."""

    #: The kind, for programs: capitals and underscores, e.g. ``TRIAL_PORT_MOVED``.
    code: str
    #: One sentence: what is so, and what to do about it.
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigWarning(Problem):
    """Something about an experiment file that refuses nothing; its text is as a problem's."""

    #: As `ExperimentWarning.code`.
    code: str

    @property
    def told(self) -> ExperimentWarning:
        """With file, line and field in its message."""
        return ExperimentWarning(code=self.code, message=str(self))
