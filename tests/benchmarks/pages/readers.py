"""Open pages of one experiment without a browser: `python -m tests.benchmarks.pages.readers URL COUNT SECONDS`.

Each has one event stream and sends the requests of the scripts: after an event for the page, at most every 0.6 s;
for the charts of the first screen with the ETag of their last answer, at the interval in the events. One in five shows
the table of trials. It prints the milliseconds from each event to the page that shows it, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

#: The same values as in live.js and feed.js.
_PAGE_PAUSE_S, _REST = 0.6, 5
_CHARTS = ("results", "curves", "parallel")


@dataclass(slots=True)
class _Page:
    """One open page."""

    client: httpx.AsyncClient
    path: str
    late_ms: list[float] = field(default_factory=list)
    chart_pause_s: float = 1
    #: Time of the oldest event that is not shown yet; None: all are shown.
    told_s: float | None = None

    async def look(self) -> None:
        """Read until cancelled."""
        news = {name: asyncio.Event() for name in ("", *(() if self.path.endswith("trials") else _CHARTS))}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(list(news.values())))
            group.create_task(self._show(news[""]))
            for name in set(news) - {""}:
                group.create_task(self._chart(name, news[name]))

    async def _listen(self, news: list[asyncio.Event]) -> None:
        stream = f"{self.path.removesuffix('/trials')}/stream"
        async with self.client.stream("GET", stream, timeout=httpx.Timeout(30)) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    self.told_s = self.told_s or time.perf_counter()
                    self.chart_pause_s = json.loads(line[5:]).get("chartPauseMs", 1000) / 1000
                    for one in news:
                        one.set()

    async def _show(self, news: asyncio.Event) -> None:
        tag = ""
        while await news.wait():
            news.clear()
            began, told, self.told_s = time.perf_counter(), self.told_s, None
            tag = await self._get(self.path, tag)
            now = time.perf_counter()
            self.late_ms.append((now - (told or began)) * 1000)
            await asyncio.sleep(max(_PAGE_PAUSE_S, 3 * (now - began)))

    async def _chart(self, name: str, news: asyncio.Event) -> None:
        path, tag = f"/api/v1{self.path}/analysis/{name}", ""
        while await news.wait():
            news.clear()
            began = time.perf_counter()
            tag = await self._get(path, tag)
            await asyncio.sleep(max(self.chart_pause_s, _REST * (time.perf_counter() - began)))

    async def _get(self, path: str, tag: str) -> str:
        """The answer's ETag. Like a browser, retries once if the server has closed an idle connection."""
        for _ in range(3):
            with suppress(httpx.TransportError):
                answer = await self.client.get(path, headers={"If-None-Match": tag} if tag else {})
                assert answer.status_code in (200, 304), answer.text
                return answer.headers.get("ETag", "")
        raise AssertionError(f"no answer: {path}")


async def _main(url: str, count: int, seconds: float) -> None:
    base, _, path = url.partition("/experiments/")
    paths = [f"/experiments/{path}{'/trials' if number % 5 == 4 else ''}" for number in range(count)]
    pages = [_Page(_client(base), path) for path in paths]
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for page in pages:
                group.create_task(page.look())
            group.create_task(asyncio.sleep(seconds + 1))
    print(json.dumps([late for page in pages for late in page.late_ms]))


def _client(base: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=6)  # of a browser
    # `verify`: reading all certificates would take most of a client's time
    return httpx.AsyncClient(base_url=base, trust_env=False, limits=limits, verify=False)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
