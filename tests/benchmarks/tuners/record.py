"""Finished searches in a file, so that an interrupted table can be continued."""

from __future__ import annotations

import json
from pathlib import Path

#: Tuner, group, family, seed, trials at a time.
Case = tuple[str, str, str, int, int]


class Record:
    """`path`: a line of JSON for each search; None: store nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[Case, float] = {}
        if path is not None and path.exists():
            # an interrupted write leaves an incomplete line
            lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            path.write_text("".join(lines))
            self._known = {tuple(case): regret for case, regret in map(json.loads, lines)}

    def get(self, case: Case) -> float | None:
        return self._known.get(case)

    def add(self, case: Case, regret: float) -> None:
        self._known[case] = regret
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps([case, regret]) + "\n")
