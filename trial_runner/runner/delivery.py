"""The delivery of an attempt's posts, and sentences about undelivered ones: printed, and part of the final report."""

import threading
import time
import traceback
from typing import Callable, List, Optional

from trial_runner import protocol
from trial_runner.runner.client import Answer, Client, Fenced, Refused, Unavailable
from trial_runner.runner.posts import Stream

_MAX_CHARACTERS = 300


class Undelivered:
    """Sentences: the first few are stored, the others counted. Any thread may add one."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._sentences: List[str] = []
        self._more = 0

    def add(self, sentence: str) -> None:
        """Prints and stores the sentence, once."""
        sentence = sentence[:_MAX_CHARACTERS]
        if sentence in self._sentences:
            return
        if len(self._sentences) == protocol.MAX_SENTENCES - 1:
            self._more += 1
            return
        self._sentences.append(sentence)
        self._say(sentence)

    def sentences(self) -> List[str]:
        return [*self._sentences, "and {} more like these".format(self._more)] if self._more else self._sentences[:]


#: Seconds for each later post when a post ran out of time.
_LAST_TRY_S = 5.0
#: Seconds until a failed turn is repeated.
_FAULT_WAIT_S = 0.5


class Delivery(threading.Thread):
    """`streams`: the most urgent first. `on_over`: called in this thread when it has nothing more to do."""

    def __init__(
        self,
        client: Client,
        streams: List[Stream],
        drain_s: float,
        on_over: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(name="delivery", daemon=True)
        self._client = client
        self._streams = streams
        self._drain_s = drain_s
        self._on_over = on_over
        self._say = say
        self._news = threading.Condition()
        self._has_changed = False
        self._is_ending = False
        self._has_ended = False
        #: The report of the end, until it is one of the streams.
        self._farewell: Optional[Stream] = None
        #: When undelivered data of an ended command is given up.
        self._give_up_at = 0.0
        self._trouble = ""
        #: The manager accepts no more posts of this attempt.
        self.is_fenced = False
        #: The last request of several posts failed: they are made one by one until one of them succeeds.
        self._is_apart = False
        #: The end was posted together with other data. The manager may have closed the attempt although no answer
        #: arrived, and then refuses the repeated data.
        self._may_be_decided = False

    def notice(self) -> None:
        """Files may have grown. Any thread may call it."""
        with self._news:
            self._has_changed = True
            self._news.notify()

    def finish(self, farewell: Optional[Stream]) -> None:
        """Called when all outboxes are complete: delivers the rest with the report of the end, and ends.
        Thread-safe."""
        with self._news:
            self._farewell = farewell
            self._has_ended = True
            self._news.notify()

    def run(self) -> None:
        try:
            while self._safe_turn():
                pass
        except Fenced as fence:
            self.is_fenced = True
            self._say("The manager has closed this attempt: {}".format(fence))
        finally:
            self._client.close()
            self._on_over()

    def _safe_turn(self) -> bool:
        """As `_turn`; failures, for example for lack of memory, are retried as long as an end has time."""
        try:
            return self._turn()
        except Fenced:
            raise
        except Exception:
            self._complain(traceback.format_exc().rstrip())
            if self._is_ending and time.monotonic() > self._give_up_at:
                return False
            time.sleep(_FAULT_WAIT_S)
            return True

    def _turn(self) -> bool:
        """Posts one thing or waits for one. False: finished. Raises Fenced."""
        self._take_news()
        if self._is_ending and self._trouble and time.monotonic() > self._give_up_at:
            self._give_up()
        stream = self._most_urgent()
        if stream is None and self._is_ending:
            return False
        due_at = None if stream is None else stream.due_at()
        wait_s = None if due_at is None else due_at - time.monotonic()
        if stream is None or wait_s is None or wait_s > 0:
            self._wait(wait_s)
        else:
            self._send(self._together(stream))
        return True

    def _take_news(self) -> None:
        with self._news:
            has_changed, self._has_changed = self._has_changed, False
            has_ended = self._has_ended and not self._is_ending
        if has_ended and self._farewell is not None:  # here, as it must not be due before the results are complete
            self._streams = [*self._streams, self._farewell]
        for stream in self._streams:
            if has_ended:
                stream.note_end()
            elif has_changed:
                stream.note_change()
        if has_ended:
            self._is_ending = True
            self._give_up_at = time.monotonic() + self._drain_s

    def _give_up(self) -> None:
        """Gives up the current post; later posts get a moment each: a manager that refuses results may accept the
        end."""
        for stream in self._at_work():
            stream.give_up()
        self._give_up_at = time.monotonic() + min(self._drain_s, _LAST_TRY_S)

    def _at_work(self) -> List[Stream]:
        """All streams while the command runs; afterwards the first, in order, that has data left."""
        if not self._is_ending:
            return self._streams
        left = [(stream.place_at_end, stream) for stream in self._streams if not stream.is_done]
        first = min((place for place, _ in left if place is not None), default=None)
        return [stream for place, stream in left if place is not None and place == first]

    def _most_urgent(self) -> Optional[Stream]:
        """The due stream, in the order of the streams; otherwise the one that is due next."""
        now = time.monotonic()
        times = [
            (max(now, due_at), stream)
            for stream in self._at_work()
            for due_at in (stream.due_at(),)
            if due_at is not None
        ]
        return min(times, key=lambda time_and_stream: time_and_stream[0])[1] if times else None

    def _wait(self, seconds: Optional[float]) -> None:
        if self._is_ending:
            left = self._give_up_at - time.monotonic()
            seconds = max(0.0, left if seconds is None else min(seconds, left)) + 0.001
        with self._news:
            if not self._has_changed and self._has_ended == self._is_ending:
                self._news.wait(seconds)

    def _together(self, first: Stream) -> List[Stream]:
        """The streams to post together with a due one, in the order that the manager needs."""
        if not self._client.takes_together or self._is_apart:
            return [first]
        now = time.monotonic()
        if not self._is_ending:
            return [first] + [other for other in self._streams if other is not first and _is_due(other, now)]
        left = [stream for stream in self._streams if stream.place_at_end is not None and not stream.is_done]
        found = [first]
        for stream in sorted(left, key=lambda each: each.place_at_end or 0):
            if any(other.place_at_end != stream.place_at_end and not other.is_last for other in found):
                break
            if stream is not first and _is_due(stream, now):
                found.append(stream)
            elif stream is not first:
                break
        return found

    def _send(self, streams: List[Stream]) -> None:
        posts = [stream.post() for stream in streams]
        if len(posts) == 1:
            return self._settle(streams[0], lambda: self._client.post(*posts[0]))
        self._may_be_decided = self._may_be_decided or any(stream.place_at_end == 1 for stream in streams)
        try:
            answers = self._client.post_together(posts)
        except (Unavailable, Refused, Fenced) as error:
            self._is_apart = True
            if isinstance(error, Unavailable):
                streams[0].put_off(error.retry_after)
                self._complain(str(error))
            return None
        for stream, answer in zip(streams, answers):  # noqa: B905 - there may be fewer
            self._settle(stream, answer)
        if not answers:
            self._is_apart = True
        return None

    def _settle(self, stream: Stream, answer: Answer) -> None:
        try:
            stream.settle(answer)
        except Unavailable as error:
            stream.put_off(error.retry_after)
            self._complain(str(error))
        except Fenced:
            if not self._may_be_decided:
                raise
            stream.is_given_up = True  # it was part of the request whose end closed the attempt
        except Exception:
            # a bug must not cost the results of other streams, nor later ones
            stream.put_off(None)
            self._complain(traceback.format_exc().rstrip())
        else:
            stream.succeed()
            self._is_apart = False
            self._give_up_at = time.monotonic() + self._drain_s
            self._complain("")

    def _complain(self, trouble: str) -> None:
        """Prints a trouble once when it begins, and once when it is over."""
        if bool(trouble) != bool(self._trouble):
            self._say("{}; trying again".format(trouble) if trouble else "the manager answers again")
        self._trouble = trouble


def _is_due(stream: Stream, now: float) -> bool:
    due_at = stream.due_at()
    return due_at is not None and due_at <= now
