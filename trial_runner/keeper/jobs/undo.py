"""The steps that undo a failed start."""

from typing import Any, Callable, List, Optional, Tuple, Type


class Undo:
    """A context with undo steps, which run in reverse order if an exception leaves it.

    A plain list: every start adds a dozen and runs none; an `ExitStack` would cost as much as the files.
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
        """Runs all steps, even if some raise; the last error is raised."""
        if self._steps:
            step, arguments = self._steps.pop()
            try:
                step(*arguments)
            finally:
                self._run()
