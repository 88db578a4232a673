"""The one tree of exceptions; every layer raises from it and imports nothing to do so.

    HeadraceError
    ├── RequestError            the caller's fault: INVALID_ARGUMENT
    │   ├── NotFoundError       no such model, version or region: NOT_FOUND
    │   ├── ExistsError         the name is taken: ALREADY_EXISTS
    │   ├── UnsupportedError    understood, but not offered here: UNIMPLEMENTED
    │   └── TooLargeError       over a configured limit: RESOURCE_EXHAUSTED
    ├── OverloadedError         try later: UNAVAILABLE (or as configured), with retry push-back
    ├── UnavailableError        not ready, or shutting down: UNAVAILABLE
    │   └── RetiredError        another version serves now: the front door looks again
    ├── NoSlotError             no slot of its own is left for a stream: RESOURCE_EXHAUSTED
    ├── ExpiredError            the deadline passed before the work started: DEADLINE_EXCEEDED
    ├── QueueTimeoutError       it waited longer than the queue policy lets: UNAVAILABLE
    ├── SupersededError         a fresher request of its source took its place: ABORTED
    ├── AbandonedError          the caller left: CANCELLED
    ├── ConfigError             a wrong flag, config.pbtxt or model file: fails a load only
    ├── EngineError             the engine refused or failed this work: INTERNAL
    └── DeviceError             CUDA said no; `sticky` when every later call will fail too: INTERNAL

Anything else that reaches the front door is a bug of ours: logged with its traceback, answered
INTERNAL without details. The gRPC status of each class is one table, in `rpc/status.py`.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of everything that headrace raises on purpose."""


class RequestError(HeadraceError):
    """The request is wrong; the message says what came, what was expected and how to mend it."""


class NotFoundError(RequestError):
    """The model, the version or the region that was asked for is not here."""


class ExistsError(RequestError):
    """What is to be made under a name is there already."""


class UnsupportedError(RequestError):
    """The call is valid, but this server does not offer it."""


class TooLargeError(RequestError):
    """The request is over a limit that the operator set."""


class OverloadedError(HeadraceError):
    """No room for the request now; the caller may try later."""


class UnavailableError(HeadraceError):
    """The model or the server is not ready, or is shutting down."""


class RetiredError(UnavailableError):
    """This version takes no more requests; whoever asked looks again for the one that does."""


class NoSlotError(HeadraceError):
    """A stream asked for a slot of its own, and the model has none to spare."""


class ExpiredError(HeadraceError):
    """The deadline passed, or can no longer be met, before the work started."""


class QueueTimeoutError(HeadraceError):
    """The request waited in the queue for longer than it may, by the model's policy or its own."""


class SupersededError(HeadraceError):
    """A fresher request of the same source came before this one ran; only the freshest matters."""


class AbandonedError(HeadraceError):
    """The caller cancelled; whatever the work produced is dropped."""


class ConfigError(HeadraceError):
    """A flag, a configuration file or a model file is wrong.

    Args:
        reason: What is wrong and how to mend it.
        path: The file, when there is one.
        field: The field inside the file, in the file's own notation.
    """

    def __init__(self, reason: str, *, path: str | None = None, field: str | None = None) -> None:
        self.reason = reason
        self.path = path
        self.field = field
        super().__init__(": ".join(part for part in (path, field, reason) if part))


class EngineError(HeadraceError):
    """The engine refused this work or failed at it; other requests are not touched."""


class DeviceError(HeadraceError):
    """A call of the device failed.

    Args:
        reason: What was being done.
        code: CUDA's number, 0 when there is none.
        name: CUDA's name for it, such as ``cudaErrorIllegalAddress``.
        sticky: True when the context is dead: every later call fails and the process must restart.
    """

    def __init__(self, reason: str, *, code: int = 0, name: str = "", sticky: bool = False) -> None:
        self.reason = reason
        self.code = code
        self.name = name
        self.sticky = sticky
        super().__init__(f"{reason} ({name} {code})" if name else reason)
