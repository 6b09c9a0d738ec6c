"""Warnings of a daemon, in memory only: the next process detects the causes again."""

from __future__ import annotations

from collections.abc import Callable

from nni_manager.domain.experiment import ExperimentWarning


class DaemonWarnings:
    """The warnings of a daemon; `set` and `clear` are idempotent."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[str, str], ExperimentWarning]] = {}
        #: Called with an experiment's id after its warnings changed.
        self.on_change: Callable[[str], None] = lambda _: None

    def set(self, experiment_id: str, warning: ExperimentWarning, about: str = "") -> None:
        """Sets a warning; it replaces one of the same experiment, code and subject."""
        known = self._known.setdefault(experiment_id, {})
        if known.get((warning.code, about)) != warning:
            known[warning.code, about] = warning
            self.on_change(experiment_id)

    def clear(self, experiment_id: str, code: str = "", about: str = "") -> None:
        """Clears a warning; without a code, all of the experiment."""
        known = self._known.get(experiment_id, {})
        gone = [(code, about)] if (code, about) in known else [] if code else list(known)
        for name in gone:
            del known[name]
        if not known:
            self._known.pop(experiment_id, None)
        if gone:
            self.on_change(experiment_id)

    def of(self, experiment_id: str) -> tuple[ExperimentWarning, ...]:
        """The warnings of an experiment, oldest first."""
        return tuple(self._known.get(experiment_id, {}).values())
