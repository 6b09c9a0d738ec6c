"""What a start that fails takes back."""

from typing import Any, Callable, List, Optional, Tuple, Type


class Undo:
    """A context with steps, the last first, that are taken where it is left by an exception.

    A plain list: every start adds a dozen and takes none, and those of an `ExitStack` cost as much as files do.
    """

    def __init__(self) -> None:
        self._steps: List[Tuple[Callable[..., object], Tuple[Any, ...]]] = []

    def __enter__(self) -> "Undo":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], *_: object) -> None:
        if kind is not None:
            self._run()

    def add(self, step: Callable[..., object], *arguments: object) -> None:
        self._steps.append((step, arguments))

    def _run(self) -> None:
        """Takes all of them, whatever one raises; the last error is raised."""
        if self._steps:
            step, arguments = self._steps.pop()
            try:
                step(*arguments)
            finally:
                self._run()
