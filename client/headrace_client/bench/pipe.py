"""A worker's end of the pipe to the process that started it; its threads keep the loop free."""

from __future__ import annotations

import asyncio
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue

from headrace_client.bench.level import Ended, Failed, Ready, Run, Stop
from headrace_client.bench.record import Rows

Order = Run | Stop
Answer = Ready | Failed | Rows | Ended


class Pipe:
    """Hands over orders and answers; use it on one event loop.

    Args:
        connection: The pipe, of which this takes over reading and writing, but not closing.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._orders: asyncio.Queue[Order | None] = asyncio.Queue()
        self._answers: SimpleQueue[Answer | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="pipe-writer", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, name="pipe-reader", daemon=True).start()

    async def order(self) -> Order | None:
        """Wait for the next order; None when the other end is closed."""
        return await self._orders.get()

    def answer(self, answer: Answer) -> None:
        """Send without waiting."""
        self._answers.put(answer)

    def flush(self) -> None:
        """Wait until all answers are sent; send no more after."""
        self._answers.put(None)
        self._writer.join()

    def _read(self) -> None:
        while True:
            try:
                order = self._connection.recv()
            except (EOFError, OSError):
                order = None
            try:
                self._loop.call_soon_threadsafe(self._orders.put_nowait, order)
            except RuntimeError:  # the loop is closed: nobody listens any more
                return
            if order is None:
                return

    def _write(self) -> None:
        while (answer := self._answers.get()) is not None:
            try:
                self._connection.send(answer)
            except OSError:  # the other end is gone, which the reader tells
                return
