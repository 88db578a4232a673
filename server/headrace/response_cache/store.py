"""Keeps replies by what was asked; what nobody asked for longest makes room, counted in bytes.

Rules
- Any thread may call any method. The lock is held for a bounded number of look-ups, whatever the
  sizes: nobody's reply waits for another's to be put away.
- A model's replies are reached through its own `ModelCache` alone, and are gone when that closes:
  another version, or the same one loaded anew, never answers from them.
- What is kept is the message that was sent, not a copy of it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from threading import Lock
from typing import Final, NamedTuple

from headrace.response_cache.digest import Digest

ENTRY_BYTES: Final = 420
"""What an entry takes beside the bytes of its reply: digest, tuples, places in a dictionary and a
set. Measured with tracemalloc: 372 to 405, by how full these two are (CPython 3.11)."""

MAX_EVICTIONS: Final = 256
"""Of one insertion, 0.2 ms. A reply in whose place more would have to go is not kept this time; the
room stays, so that the next one finds it."""

CLOSED_AT_ONCE: Final = 256  # entries dropped under one hold of the lock


class Kept(NamedTuple):
    """A reply as it was sent.

    Attributes:
        reply: The whole message.
        body_at: Where that begins in it which is the same for all who ask this.
        is_bare: It is a ModelInferResponse without an id: it may be sent as it is.
    """

    reply: bytes
    body_at: int
    is_bare: bool

    @property
    def size_bytes(self) -> int:
        """What it counts for."""
        return len(self.reply) + ENTRY_BYTES

    @property
    def body(self) -> memoryview:
        """What is the same for all who ask this."""
        return memoryview(self.reply)[self.body_at :]


class ResponseCache:
    """The replies of all models."""

    def __init__(self, max_bytes: int, secret: bytes | None = None) -> None:
        """Start empty.

        Args:
            max_bytes: All that is kept, `ENTRY_BYTES` for each included.
            secret: Part of every digest; a random one by default.
        """
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.num_evictions = 0
        self._secret = secrets.token_bytes(32) if secret is None else secret
        self._entries: OrderedDict[bytes, tuple[Kept, ModelCache]] = OrderedDict()  # oldest first
        self._num_opened = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def open(self) -> ModelCache:
        """Return a place for the replies of one model, closed by its owner."""
        with self._lock:
            self._num_opened += 1
            return ModelCache(self, self._num_opened)

    def digest(self, form: bytes) -> Digest:
        """Return what digests requests of one form."""
        return Digest(self._secret, form)

    def find(self, key: bytes) -> Kept | None:
        """Return what is kept under a key, which is now the last to make room."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def keep(self, key: bytes, kept: Kept, owner: ModelCache) -> None:
        """Keep a reply, unless there is one already or no room can be made for it."""
        size_bytes = kept.size_bytes
        if size_bytes > self.max_bytes:
            return
        with self._lock:
            if owner.is_closed or key in self._entries:
                return
            self._make_room(self.max_bytes - size_bytes)
            if self.num_bytes + size_bytes <= self.max_bytes:
                self._entries[key] = kept, owner
                owner.keys.add(key)
                self.num_bytes += size_bytes

    def drop(self, owner: ModelCache) -> None:
        """Forget every reply of a model, in turns, so that others get theirs in between."""
        while True:
            with self._lock:
                owner.is_closed = True
                for _ in range(min(len(owner.keys), CLOSED_AT_ONCE)):
                    self.num_bytes -= self._entries.pop(owner.keys.pop())[0].size_bytes
                if not owner.keys:
                    return

    def _make_room(self, most_bytes: int) -> None:
        """Let the oldest go until no more than this is kept, or enough for once have gone."""
        for _ in range(MAX_EVICTIONS):
            if self.num_bytes <= most_bytes:
                return
            key, (kept, owner) = self._entries.popitem(last=False)
            owner.keys.discard(key)
            self.num_bytes -= kept.size_bytes
            self.num_evictions += 1


class ModelCache:
    """The replies of one version of one model, as long as it is loaded.

    Attributes:
        keys: Of what is kept; the store's.
        is_closed: Nothing more is kept; the store's.
    """

    __slots__ = ("_number", "_store", "is_closed", "keys")

    def __init__(self, store: ResponseCache, number: int) -> None:
        self._store = store
        self._number = number
        self.keys: set[bytes] = set()
        self.is_closed = False

    def digest(self, form: object) -> Digest:
        """Return what digests this model's requests of one form.

        Args:
            form: All but the tensors' bytes that decides the answer; told apart by its `repr`.
        """
        return self._store.digest(repr((self._number, form)).encode())

    def find(self, key: bytes) -> Kept | None:
        """Return the reply to what has this digest, None when it is not kept."""
        return self._store.find(key)

    def keep(self, key: bytes, kept: Kept) -> None:
        """Keep a reply for those who ask the same."""
        self._store.keep(key, kept, self)

    def close(self) -> None:
        """Forget everything and keep nothing more. A second call does nothing."""
        self._store.drop(self)
