"""Warnings of a daemon. Nothing is stored: the next process finds out again what to warn of."""

from __future__ import annotations

from collections.abc import Callable

from nni_manager.domain.experiment import ExperimentWarning


class DaemonWarnings:
    """The warnings of a daemon. Whoever notices something sets one, and clears it later; both are idempotent."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[str, str], ExperimentWarning]] = {}
        #: Called with the id of an experiment whose warnings are others now.
        self.on_change: Callable[[str], None] = lambda _: None

    def set(self, experiment_id: str, warning: ExperimentWarning, about: str = "") -> None:
        """Each experiment has one warning of a code and a subject at most: the newest."""
        known = self._known.setdefault(experiment_id, {})
        if known.get((warning.code, about)) != warning:
            known[warning.code, about] = warning
            self.on_change(experiment_id)

    def clear(self, experiment_id: str, code: str = "", about: str = "") -> None:
        """Without a code: all of the experiment."""
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
