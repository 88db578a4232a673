"""A stream's two tasks: what another thread answers is written, what nobody reads holds no more."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
import pytest

from headrace.errors import RequestError
from headrace.rpc.infer import InferService
from headrace.rpc.inflate import Inflater
from headrace.rpc.prepare import Limits
from headrace.rpc.stream import StreamBounds
from headrace.rpc.stream_service import StreamService
from headrace.scheduling.request import Request
from headrace_proto.v1 import inference_pb2 as pb
from helpers.served import catalog_of, served

END = grpc.aio.EOF


class Context:
    """A call of grpcio: the test sends requests and takes replies, when it likes."""

    def __init__(self, *, is_read: bool = True) -> None:
        self.requests: asyncio.Queue[Any] = asyncio.Queue()
        self.replies: list[bytes] = []
        self.may_write = asyncio.Event()
        if is_read:
            self.may_write.set()
        self.num_read = 0
        self.aborted: tuple[grpc.StatusCode, str] | None = None

    async def read(self) -> Any:
        message = await self.requests.get()
        self.num_read += message is not END
        return message

    async def write(self, message: bytes) -> None:
        await self.may_write.wait()
        self.replies.append(message)

    async def abort(self, code: grpc.StatusCode, text: str, _: object) -> None:
        self.aborted = code, text
        raise grpc.aio.AbortError

    def invocation_metadata(self) -> tuple[Any, ...]:
        return ()

    def time_remaining(self) -> None:
        return None

    @property
    def ids(self) -> list[str]:
        parse = pb.ModelStreamInferResponse.FromString
        return [parse(reply).infer_response.id for reply in self.replies]


class Link:
    """Requests wait here until the test ends them, on any thread; the lock is the real one's."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.come = threading.Semaphore(0)  # one for each request
        self.requests: deque[Request] = deque()
        self.cancelled: list[Request] = []

    def submit(self, request: Request, now: float) -> None:
        with self.lock:
            request.staged_at = now
            self.requests.append(request)
        self.come.release()

    def cancel(self, request: Request) -> None:
        with self.lock:
            self.cancelled.append(request)

    def end_next(self) -> None:
        with self.lock:
            self.requests.popleft().end([((1, 2), bytes(8))], None)

    def end_many(self, count: int) -> None:
        """End so many as they come; one that waited in vain ends nothing more."""
        for _ in range(count):
            if not self.come.acquire(timeout=10.0):
                return
            self.end_next()


class Driver:
    """Steps nothing: the test ends requests itself."""

    def __init__(self, on_step: Callable[[], None] = lambda: None) -> None:
        self.step = on_step


class Streams:
    """The service over that link."""

    def __init__(self, bounds: StreamBounds | None = None) -> None:
        self.link = Link()
        link: Any = self.link
        model = served("x FP32[?,2]", "y FP32[?,2]", "max_batch_size: 4")
        infer = InferService(catalog_of(model), link, Limits(), clock=float, max_request_bytes=1000)
        driver: Any = Driver()
        self.service = StreamService(
            infer,
            link,
            driver,
            bounds or StreamBounds(),
            inflater=Inflater(1000),
            clock=float,
            max_held_bytes=1 << 30,
        )

    async def serve(self, context: Context) -> None:
        with suppress(grpc.aio.AbortError):
            await self.service._serve(None, context)  # type: ignore[arg-type]


def message(request_id: str) -> bytes:
    request = pb.ModelInferRequest(model_name="m", id=request_id, raw_input_contents=[bytes(8)])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    return request.SerializeToString()


async def until(is_so: Callable[[], bool]) -> None:
    """Let the tasks run until it is; the test's time limit is the bound."""
    while not is_so():  # noqa: ASYNC110 -- the reader and the writer have no event to wait for
        await asyncio.sleep(0)


def test_what_another_thread_answers_is_written() -> None:
    """Thousands of answers from a thread of their own: none is left lying, and the stream ends."""

    async def main() -> None:
        streams, context = Streams(StreamBounds(max_requests=7)), Context()
        thread = threading.Thread(target=streams.link.end_many, args=(3000,))
        thread.start()
        try:
            serving = asyncio.create_task(streams.serve(context))
            for index in range(3000):
                context.requests.put_nowait(message(str(index)))
            context.requests.put_nowait(END)
            await serving
        finally:
            thread.join()
        assert context.ids == [str(index) for index in range(3000)]
        assert (streams.service.num_open, streams.service.held.total) == (0, 0)

    asyncio.run(main())


def test_a_stream_that_is_not_read_is_not_read_from() -> None:
    """Beyond its bound, until a reply has left; then one request more for each."""

    async def main() -> None:
        streams, context = Streams(StreamBounds(max_requests=3)), Context(is_read=False)
        for index in range(10):
            context.requests.put_nowait(message(str(index)))
        serving = asyncio.create_task(streams.serve(context))
        await until(lambda: context.num_read == 3)
        for _ in range(3):
            streams.link.end_next()
        for _ in range(100):
            await asyncio.sleep(0)
        assert (context.num_read, context.replies) == (3, [])
        context.may_write.set()
        await until(lambda: context.num_read == 6)
        assert context.ids == ["0", "1", "2"]
        serving.cancel()
        await asyncio.wait([serving])

    asyncio.run(main())


def test_a_cancelled_handler_cancels_its_requests() -> None:
    """As grpcio does when a client leaves; the link hears of each once."""

    async def main() -> None:
        streams, context = Streams(), Context()
        for index in range(5):
            context.requests.put_nowait(message(str(index)))
        serving = asyncio.create_task(streams.serve(context))
        await until(lambda: context.num_read == 5)
        streams.link.end_next()
        await until(lambda: bool(context.replies))
        left = list(streams.link.requests)
        serving.cancel()
        await asyncio.wait([serving])
        assert serving.cancelled()
        assert streams.link.cancelled == left
        for request in left:  # the core still ends them, to nobody
            request.end(None, RequestError("gone"))
        assert (streams.service.num_open, streams.service.held.total) == (0, 0)

    asyncio.run(main())


def test_drained_it_answers_what_is_in_and_says_why() -> None:
    """Requests that were not read get no answer, and the status tells."""

    async def main() -> None:
        streams, context = Streams(), Context()
        context.requests.put_nowait(message("in"))
        serving = asyncio.create_task(streams.serve(context))
        await until(lambda: context.num_read == 1)
        draining = asyncio.create_task(streams.service.drain(30))
        for _ in range(10):
            await asyncio.sleep(0)
        context.requests.put_nowait(message("out"))
        assert not draining.done()
        streams.link.end_next()
        await asyncio.gather(draining, serving)
        assert context.ids == ["in"]
        assert context.aborted is not None
        assert context.aborted[0] is grpc.StatusCode.UNAVAILABLE
        assert context.requests.qsize() == 1

    asyncio.run(main())


def test_a_drain_has_a_bound() -> None:
    """A client that does not read does not hold it up."""

    async def main() -> None:
        streams, context = Streams(), Context(is_read=False)
        context.requests.put_nowait(message("in"))
        serving = asyncio.create_task(streams.serve(context))
        await until(lambda: context.num_read == 1)
        streams.link.end_next()
        await streams.service.drain(0.0)
        assert not serving.done()
        serving.cancel()
        await asyncio.wait([serving])

    asyncio.run(main())


def test_a_bug_while_reading_is_told_and_ends_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """INTERNAL without details; the log has them."""

    class Broken(Context):
        async def read(self) -> Any:
            raise KeyError("secret")

    async def main() -> None:
        context = Broken()
        await Streams().serve(context)
        assert context.aborted is not None
        code, text = context.aborted
        assert (code, "secret" in text) == (grpc.StatusCode.INTERNAL, False)

    asyncio.run(main())
    assert "KeyError: 'secret'" in caplog.text
