"""The experiments whose columns are kept in memory; the least recently asked go first."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nni_manager.analysis.columns.trial_set import TrialSet
from nni_manager.domain.errors import StoreCorrupt
from nni_manager.store.connection import classified, connect_readonly

#: Most experiments, and most bytes of all but the one that is asked about.
_MOST = 8
_MOST_BYTES = 256 << 20


class KeptExperiments:
    """The columns of experiments by the path of their databases."""

    def __init__(self) -> None:
        #: Path → revision and columns; the most recently asked is last.
        self._kept: OrderedDict[str, tuple[str, TrialSet]] = OrderedDict()

    @contextmanager
    def read(self, path: str, revision: str, *, parameters: bool) -> Iterator[tuple[TrialSet, sqlite3.Connection]]:
        """The columns as of `revision` or later, and a connection that sees the same state. `parameters`: they are
        needed, too. Raises StoreError."""
        try:
            with closing(connect_readonly(Path(path))) as connection:
                connection.execute("BEGIN")
                yield self._brought_up(path, revision, connection, parameters=parameters), connection
        except sqlite3.DatabaseError as error:
            self._kept.pop(path, None)
            raise classified(Path(path), error) from error
        self._forget_others()

    def _brought_up(self, path: str, revision: str, connection: sqlite3.Connection, *, parameters: bool) -> TrialSet:
        known, trials = self._kept.pop(path, ("", TrialSet()))
        # for the same revision the connection may see more than was read before, as trials go on
        if known != revision or not trials.has_all(connection):
            trials = _refreshed(trials, connection, path)
        if parameters:
            trials.read_parameters(connection)
        self._kept[path] = revision, trials
        return trials

    def _forget_others(self) -> None:
        while len(self._kept) > 1 and (len(self._kept) > _MOST or self._nbytes > _MOST_BYTES):
            self._kept.popitem(last=False)

    @property
    def _nbytes(self) -> int:
        return sum(trials.nbytes for _, trials in self._kept.values())


def _refreshed(trials: TrialSet, connection: sqlite3.Connection, path: str) -> TrialSet:
    """The columns with what changed; read anew where they do not fit together. Raises StoreCorrupt."""
    try:
        trials.refresh(connection)
        return trials
    except (LookupError, ValueError):  # another content under the same path
        trials = TrialSet()
    try:
        trials.refresh(connection)
        return trials
    except (LookupError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"the database {path} cannot be read ({error}); restore it from a backup") from error
