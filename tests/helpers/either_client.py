"""`Client` and `AsyncClient` behind one blocking face, so that one test holds for both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace_client import AsyncClient, Client

KINDS = ("sync", "asyncio")
ANSWER_S = 15.0


class Awaiting:
    """An AsyncClient whose methods wait: its loop runs in a thread of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.client = AsyncClient(url, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            coroutine = method(*arguments, **options)
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(ANSWER_S)

        return call

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@contextmanager
def open_client(kind: str, url: str, **options: Any) -> Iterator[Any]:
    """A client of one kind; every method waits for its result."""
    if kind == "sync":
        with Client(url, **options) as client:
            yield client
        return
    awaiting = Awaiting(url, **options)
    try:
        yield awaiting
    finally:
        awaiting.close()
        awaiting.stop()
