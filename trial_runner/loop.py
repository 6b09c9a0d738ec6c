"""The event loop of one thread: descriptors, signals, timers, and calls for the end of a turn."""

import heapq
import select
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from typing import Callable, Deque, Dict, Iterable, List, Optional, Tuple

READ = select.EPOLLIN
WRITE = select.EPOLLOUT

Callback = Callable[[], None]
DescriptorCallback = Callable[[int], None]


class Timer:
    """A call that is due later."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Optional[Callback] = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """Calls back when a descriptor is ready or a time has come. A callback's exception is reported, not raised."""

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        #: `selectors` would cost half of a turn.
        self._epoll = select.epoll()
        #: By descriptor: the requested events, and the function to call.
        self._watched: Dict[int, Tuple[int, DescriptorCallback]] = {}
        self._timers: List[Tuple[float, int, Timer]] = []
        self._timer_count = 0
        self._soon: Deque[Callback] = deque()
        self._stopped = False

    def watch(self, descriptor: int, callback: DescriptorCallback, events: int = READ) -> None:
        """Calls `callback` with the mask of ready events; a second call for a descriptor replaces the first."""
        if descriptor in self._watched:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
        self._watched[descriptor] = events, callback

    def unwatch(self, descriptor: int) -> None:
        """Ends the watch, if there is one. Call it before the descriptor is closed."""
        if self._watched.pop(descriptor, None) is not None:
            with suppress(OSError):  # it was closed already
                self._epoll.unregister(descriptor)

    def watch_signals(self, numbers: Iterable[int], callback: Callable[[bytes], None]) -> None:
        """Calls `callback` with the numbers of received signals, a byte each. One loop per process."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        # handlers, not SIG_IGN: child processes would inherit that; the number arrives through the wakeup descriptor
        for number in numbers:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._signals = (reader, writer)
        self.watch(reader.fileno(), lambda _: callback(reader.recv(4096)))

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        timer = Timer(callback)
        self._timer_count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._timer_count, timer))
        return timer

    def call_soon(self, callback: Callback) -> None:
        """Calls it at the end of this turn; if requested by such a call, in the next turn."""
        self._soon.append(callback)

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        while not self._stopped:
            self.run_turn()

    def run_turn(self) -> None:
        """Waits until something is due, and does all of it."""
        ready = self._epoll.poll(self._timeout())
        watched = {descriptor: self._watched.get(descriptor) for descriptor, _ in ready}
        for descriptor, mask in ready:
            watch = watched[descriptor]
            # an earlier callback of this batch may have closed this descriptor, and its number may be reused
            if watch is not None and self._watched.get(descriptor) is watch:
                events, callback = watch
                # errors and hang-ups are always reported; the registered function then finds them
                self._guarded(callback, mask & events or events)
        self._run_timers()
        for _ in range(len(self._soon)):
            self._guarded(self._soon.popleft())

    def _timeout(self) -> Optional[float]:
        if self._soon:
            return 0.0
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _run_timers(self) -> None:
        now = time.monotonic() if self._timers else 0.0
        while self._timers and self._timers[0][0] <= now:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                self._guarded(callback)

    def _guarded(self, callback: Callable[..., None], *arguments: int) -> None:
        try:
            callback(*arguments)
        except Exception as error:
            self._on_error(error)
