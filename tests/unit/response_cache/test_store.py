"""The store against a plain list of what should be in it, and its bounds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.response_cache.store import (
    ENTRY_BYTES,
    MAX_EVICTIONS,
    Kept,
    ModelCache,
    ResponseCache,
)

MAX_BYTES = 5 * ENTRY_BYTES + 50  # five small replies


def kept(size_bytes: int, fill: int = 0) -> Kept:
    return Kept(bytes([fill]) * size_bytes, 0, is_bare=True)


class StoreAgainstList(RuleBasedStateMachine):
    """Least recently asked goes first; a list in order of last use says what must be there."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ResponseCache(MAX_BYTES)
        self.caches: list[ModelCache] = [self.store.open() for _ in range(2)]
        self.open = [True, True]
        self.expected: list[tuple[bytes, Kept, int]] = []  # oldest first

    @rule(key=st.integers(0, 9), who=st.integers(0, 1), size=st.integers(0, 60))
    def keep(self, key: int, who: int, size: int) -> None:
        """Put a reply in, where there is none."""
        name, reply = bytes([who, key]), kept(size, key)
        self.caches[who].keep(name, reply)
        is_there = any(each[0] == name for each in self.expected)
        if self.open[who] and not is_there and reply.size_bytes <= MAX_BYTES:
            while self.num_bytes + reply.size_bytes > MAX_BYTES:
                self.expected.pop(0)
            self.expected.append((name, reply, who))

    @rule(key=st.integers(0, 9), who=st.integers(0, 1))
    def find(self, key: int, who: int) -> None:
        """What is there is found, and is now the youngest."""
        name = bytes([who, key])
        there = [each for each in self.expected if each[0] == name]
        found = self.caches[who].find(name)
        assert found is (there[0][1] if there else None)
        if there:
            self.expected.remove(there[0])
            self.expected.append(there[0])

    @rule(who=st.integers(0, 1))
    def close(self, who: int) -> None:
        """A model goes, with all that is its."""
        self.caches[who].close()
        self.open[who] = False
        self.expected = [each for each in self.expected if each[2] != who]

    @property
    def num_bytes(self) -> int:
        return sum(each[1].size_bytes for each in self.expected)

    @invariant()
    def the_account_is_right(self) -> None:
        """Bytes and entries are those of what should be in it, and never too many."""
        assert (len(self.store), self.store.num_bytes) == (len(self.expected), self.num_bytes)
        assert self.store.num_bytes <= MAX_BYTES
        keys = {each[0] for each in self.expected}
        assert self.caches[0].keys | self.caches[1].keys == keys


TestStoreAgainstList = StoreAgainstList.TestCase
TestStoreAgainstList.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


def test_a_reply_larger_than_the_cache_is_not_kept() -> None:
    """And nothing makes room for it."""
    store = ResponseCache(MAX_BYTES)
    cache = store.open()
    cache.keep(b"small", kept(1))
    cache.keep(b"large", kept(MAX_BYTES))
    assert cache.find(b"large") is None
    assert cache.find(b"small") is not None
    assert store.num_evictions == 0


def test_one_insertion_evicts_no_more_than_so_many() -> None:
    """A large reply among thousands of small ones waits for its turn instead of stopping others."""
    store = ResponseCache((MAX_EVICTIONS + 100) * ENTRY_BYTES)
    cache = store.open()
    for index in range(MAX_EVICTIONS + 100):
        cache.keep(index.to_bytes(4, "big"), kept(0))
    large = kept(store.max_bytes - ENTRY_BYTES)
    cache.keep(b"large", large)
    assert (cache.find(b"large"), len(store)) == (None, 100)
    assert store.num_evictions == MAX_EVICTIONS
    cache.keep(b"large", large)
    assert cache.find(b"large") is large


def test_models_do_not_share_digests() -> None:
    """Two models, and two loads of one model, never find each other's replies."""
    store = ResponseCache(MAX_BYTES)
    ours, theirs = store.open(), store.open()
    form = ((1, 4), (0,))
    assert ours.digest(form).of([b"x"]) == ours.digest(form).of([b"x"])
    assert ours.digest(form).of([b"x"]) != theirs.digest(form).of([b"x"])
    assert ours.digest(form).of([b"x"]) != ResponseCache(9).open().digest(form).of([b"x"])


@given(st.binary(max_size=30), st.integers(0, 30))
def test_the_body_is_the_end_of_the_message(reply: bytes, body_at: int) -> None:
    """And no copy of it."""
    body = Kept(reply, body_at, is_bare=False).body
    assert bytes(body) == reply[body_at:]
    assert body.obj is reply


def test_threads_leave_the_account_right() -> None:
    """Four threads put in, look up and close at the same time."""
    store = ResponseCache(40 * ENTRY_BYTES)
    caches = [store.open() for _ in range(4)]

    def work(who: int) -> None:
        for index in range(3000):
            key = bytes([who, index % 50])
            if caches[who].find(key) is None:
                caches[who].keep(key, kept(index % 7))
        if who % 2:
            caches[who].close()

    _together([lambda who=who: work(who) for who in range(4)])
    assert store.num_bytes <= store.max_bytes
    assert not caches[1].keys
    assert not caches[3].keys
    assert len(store) == len(caches[0].keys) + len(caches[2].keys)
    for cache in caches:
        cache.close()
    assert (len(store), store.num_bytes) == (0, 0)


def _together(works: list[Callable[..., Any]]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
