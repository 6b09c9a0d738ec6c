"""A daemon imports its pages after its start."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest

from nni_manager.app import late_pages
from nni_manager.app.late_pages import LatePages
from nni_manager.web.context import PagesContext

pytestmark = pytest.mark.unit


async def test_pages_are_imported_soon_after_the_start_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = asyncio.Event()
    loop, threads = asyncio.get_running_loop(), list[threading.Thread]()

    def import_pages() -> None:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(imported.set)

    monkeypatch.setattr(late_pages, "_import_pages", import_pages)
    monkeypatch.setattr(late_pages, "_SOON_S", 0.05)
    LatePages(cast(PagesContext, None)).import_soon()
    await asyncio.sleep(0)
    assert not threads
    await imported.wait()
    assert threads != [threading.main_thread()]
