"""Posts that the command was started, or how it ended: once each."""

from typing import Any, Callable, Dict, Optional

from trial_runner.client import Client, Fenced, Refused
from trial_runner.heartbeat import OnStop, hear_stop
from trial_runner.stream import Stream


class Status(Stream):
    """`body` is asked when it is time, so that it can say what was delivered before."""

    def __init__(
        self, client: Client, body: Callable[[], Dict[str, Any]], on_stop: OnStop, say: Callable[[str], None],
        place_at_end: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self._client = client
        self._body = body
        self._on_stop = on_stop
        self._say = say
        self.place_at_end = place_at_end
        self._is_told = False

    def wanted_at(self) -> Optional[float]:
        return None if self._is_told else 0.0

    def send(self) -> None:
        body = self._body()
        try:
            answer = self._client.post("status", body)
        except Refused as error:
            self._say("The manager refuses the status {!r} ({}).".format(body["event"], error))
            answer = {}
        except Fenced as fence:
            if body["event"] != "exited":
                raise
            # Told before, and the answer was lost; or decided without us. Either way logs are taken on.
            self._say("The manager has decided this attempt: {}".format(fence))
            answer = {}
        self._is_told = True
        hear_stop(answer, self._on_stop)
