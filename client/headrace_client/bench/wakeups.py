"""Keeps answers coming when a worker's event loop is busy.

grpc.aio has one thread that takes events from gRPC's core and writes a byte into a socket pair for
each, to wake the event loop, which reads one byte a turn. The writing end blocks: some 280 events
that arrive during one long turn fill it, and from then on the thread brings one event a turn,
however many wait. A schedule that goes on sending then gets its answers seconds late, and charges
the server. A full socket wakes the loop as well as a fuller one, so the write need not wait.
"""

from __future__ import annotations

import socket
from typing import Any

import grpc.aio


def never_block_wakeups() -> None:
    """Start grpc.aio for this process, with a socket pair whose writing end does not block.

    Call it on the event loop, before anything else of grpc.aio; later it changes nothing.
    """
    make_pair = socket.socketpair

    def make_unblocked_pair(*args: Any, **options: Any) -> tuple[socket.socket, socket.socket]:
        reading, writing = make_pair(*args, **options)
        writing.setblocking(False)
        return reading, writing

    # There is no option for it, and no other way to the socket.
    socket.socketpair = make_unblocked_pair
    try:
        grpc.aio.init_grpc_aio()
    finally:
        socket.socketpair = make_pair
