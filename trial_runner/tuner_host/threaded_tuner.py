"""A user's tuner in an experiment with NNI's `multiThread`: each proposal is generated in a thread of its own.

So `generate_parameters` may wait for the result of another trial. The main thread passes on results, imports and
everything else, one after the other.
"""

from __future__ import annotations

from threading import Lock, Thread
from typing import Any, List, Optional, Sequence, Tuple

from trial_runner.tuner_host.user_tuner import UserTuner


class ThreadedTuner(UserTuner):
    """Answers a request for proposals at once with the available ones, and reports when there are more."""

    def __init__(self, instance: Any) -> None:
        super().__init__(instance)
        self._lock = Lock()
        #: Proposals that threads have generated, and the exception of one of them.
        self._ready: List[Tuple[int, Any]] = []
        self._error: Optional[BaseException] = None
        self._working = 0

    def propose(self, parameter_ids: List[int]) -> Tuple[Sequence[Tuple[int, Any]], bool]:
        late = [self._late.popleft() for _ in range(min(len(parameter_ids), len(self._late)))]
        wanted = parameter_ids[len(late) :]
        with self._lock:
            self._working += len(wanted)
        for parameter_id in wanted:
            Thread(target=self._work, args=(parameter_id,), daemon=True).start()
        with self._lock:
            ready, self._ready = self._ready, []
            error, self._error = self._error, None
            self.owed = self._working
        if error is not None:
            raise error
        return [*late, *ready], False

    def _work(self, parameter_id: int) -> None:
        made: List[Tuple[int, Any]] = []
        error: Optional[BaseException] = None
        try:
            made = [self._noted(parameter_id, parameters) for parameters in self._generate([parameter_id])]
        except BaseException as raised:
            error = raised
        with self._lock:
            self._working -= 1
            self._ready += made
            self._error = self._error or error
        self.on_news()
