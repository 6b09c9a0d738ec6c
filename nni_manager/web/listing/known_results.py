"""Results of closed experiments as they stand in the index, each parsed once, however many there are."""

from __future__ import annotations

from collections.abc import Collection

from nni_manager.store.index import list_summary
from nni_manager.store.index.index import Entry
from nni_manager.store.index.list_summary import ListSummary


class KnownResults:
    """What was parsed, by experiment; used from several threads, where the worst is to parse one twice."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ListSummary | None]] = {}

    def of(self, entry: Entry) -> ListSummary | None:
        """The results of an entry; None: not known."""
        known = self._known.get(entry.id)
        if known is None or known[0] != entry.results:
            known = self._known[entry.id] = entry.results, list_summary.parse(entry.results)
        return known[1]

    def keep_only(self, ids: Collection[str]) -> None:
        """Drops those of experiments that are gone."""
        if len(self._known) > len(ids):
            self._known = {id: known for id, known in tuple(self._known.items()) if id in ids}
