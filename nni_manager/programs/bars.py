"""Progress bars of rich or tqdm, if one is installed, else a plain line."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from nni_manager.domain.text import printable
from nni_manager.programs import progress
from nni_manager.programs.progress import Display, Progress


def display() -> Display:
    """The display for this program's output."""
    if find_spec("rich") is not None:
        return RichBar()
    if find_spec("tqdm") is not None:
        return TqdmBar()
    return progress.display_for(sys.stderr)


class Silent:
    """Shows nothing."""

    tick_s: float | None = None

    def show(self, now: Progress) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self, now: Progress) -> None: ...


class RichBar:
    """A bar of rich: share, trials, best, times."""

    tick_s: float | None = progress.REDRAW_S

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._bar: Any = Bar(BarColumn(), TextColumn("{task.description}", markup=False), console=Console(stderr=True))
        self._task: Any = None

    def show(self, now: Progress) -> None:
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("", total=1.0)
        fraction = now.fraction
        total = None if fraction is None else 1.0  # None: the bar moves without an end
        self._bar.update(self._task, description=progress.line(now), total=total, completed=fraction or 0.0)

    def note(self, text: str) -> None:
        self._bar.console.print(printable(text), markup=False, highlight=False)

    def close(self, now: Progress) -> None:
        self.show(now)
        self._bar.stop()


class TqdmBar:
    """A bar of tqdm, in notebooks its own form of it."""

    tick_s: float | None = progress.REDRAW_S

    def __init__(self) -> None:
        self._bar: Any = None

    def show(self, now: Progress) -> None:
        if self._bar is None:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=now.total, unit="trial")
        self._bar.total = now.total
        self._bar.n = now.done
        self._bar.set_postfix_str(progress.line(now), refresh=True)

    def note(self, text: str) -> None:
        from tqdm.auto import tqdm

        tqdm.write(printable(text), file=sys.stderr)

    def close(self, now: Progress) -> None:
        self.show(now)
        self._bar.close()
