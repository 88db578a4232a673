"""Staging blocks: sizes, one holder at a time, one budget."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.device.sim import SimDevice
from headrace.slots.blocks import MIN_BLOCK_BYTES, BlockPool, size_class


@given(st.integers(0, 1 << 40))
def test_a_size_class_holds_what_was_asked_with_little_slack(size: int) -> None:
    """Never too small, and at most a quarter too large above the smallest class."""
    got = size_class(size)
    assert got >= max(size, MIN_BLOCK_BYTES)
    assert got <= max(size * 1.25, MIN_BLOCK_BYTES)
    assert size_class(got) == got


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_size_classes_rise_with_the_size(one: int, other: int) -> None:
    """A larger request never gets a smaller block."""
    small, large = sorted((one, other))
    assert size_class(small) <= size_class(large)


def test_size_classes_are_few() -> None:
    """Four an octave: blocks of one model are used again for requests of nearly its size."""
    assert len({size_class(size) for size in range(1 << 20, 1 << 21, 1000)}) <= 5


def test_a_block_comes_back_and_is_used_again() -> None:
    """The last one released is the next one leased: its memory is warm."""
    pool = BlockPool(SimDevice(), 1 << 20)
    block = pool.lease(5000)
    assert block is not None
    pool.release(block)
    assert pool.lease(4800) is block


@given(
    st.lists(st.integers(1, 20_000), min_size=1, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.integers(1, 40_000),
)
def test_what_a_block_given_back_would_bring(
    sizes: list[int], is_kept: list[bool], wanted: int
) -> None:
    """As said before, so it is then; with nothing given back, as well."""
    pool = BlockPool(SimDevice(), 10 * MIN_BLOCK_BYTES)
    blocks = [block for size in sizes if (block := pool.lease(size)) is not None]
    kept = [block for block, stays in zip(blocks, is_kept, strict=False) if stays]
    for block in blocks:
        if block not in kept:
            pool.release(block)
    given_bytes = kept[0].size_bytes if kept else 0
    would = pool.could_lease(wanted, given_bytes)
    if kept:
        pool.release(kept[0])
    assert (pool.lease(wanted) is not None) == would


def test_no_two_holders_share_memory() -> None:
    """Leased blocks never overlap."""
    pool = BlockPool(SimDevice(), 1 << 20)
    blocks = [pool.lease(5000) for _ in range(20)]
    spans = sorted((block.ptr, block.size_bytes) for block in blocks if block is not None)
    assert len(spans) == 20
    assert all(ptr + size <= after for (ptr, size), (after, _) in pairwise(spans))


def test_releasing_twice_is_our_bug() -> None:
    """It would give one block to two requests."""
    pool = BlockPool(SimDevice(), 1 << 20)
    block = pool.lease(1)
    assert block is not None
    pool.release(block)
    with pytest.raises(AssertionError, match="twice"):
        pool.release(block)


def test_the_budget_holds_and_is_told_by_none() -> None:
    """All blocks together never exceed the budget."""
    pool = BlockPool(SimDevice(), 3 * MIN_BLOCK_BYTES)
    blocks = [pool.lease(1) for _ in range(4)]
    assert [block is None for block in blocks] == [False, False, False, True]
    assert pool.num_leased == 3
    assert pool.leased_bytes == 3 * MIN_BLOCK_BYTES


def test_free_blocks_of_other_sizes_make_room() -> None:
    """Small blocks that nobody uses do not keep a large request out."""
    device = SimDevice()
    pool = BlockPool(device, 8 * MIN_BLOCK_BYTES)
    for block in [pool.lease(1) for _ in range(8)]:
        assert block is not None
        pool.release(block)
    large = pool.lease(8 * MIN_BLOCK_BYTES)
    assert large is not None
    assert len(device.leaks()) == 1


def test_leased_blocks_are_never_given_up() -> None:
    """Making room touches free blocks only."""
    pool = BlockPool(SimDevice(), 4 * MIN_BLOCK_BYTES)
    held = pool.lease(1)
    assert held is not None
    assert pool.lease(4 * MIN_BLOCK_BYTES) is None
    held.view[:3] = b"abc"
    assert bytes(held.view[:3]) == b"abc"


def test_fits_says_whether_waiting_could_help() -> None:
    """A request larger than the whole budget must not wait."""
    pool = BlockPool(SimDevice(), 1 << 20)
    assert pool.fits(1 << 20)
    assert not pool.fits((1 << 20) + 1)


def test_closing_frees_all_but_what_is_leased() -> None:
    """A block in a request's hands goes when it is released."""
    device = SimDevice()
    pool = BlockPool(device, 1 << 20)
    held, free = pool.lease(1), pool.lease(1)
    assert held is not None
    assert free is not None
    pool.release(free)
    pool.close()
    pool.close()
    assert len(device.leaks()) == 1
    pool.release(held)
    assert device.leaks() == []
    assert pool.lease(1) is None


def test_reserving_allocates_ahead_within_the_budget() -> None:
    """What is reserved is leased without an allocation."""
    device = SimDevice()
    pool = BlockPool(device, 4 * MIN_BLOCK_BYTES)
    pool.reserve(1, 100)
    assert len(device.leaks()) == 4
    device.fail_alloc()
    assert pool.lease(1) is not None


def test_free_blocks_can_be_given_up() -> None:
    """Down to a number, of one size, and none that is leased."""
    device = SimDevice()
    pool = BlockPool(device, 1 << 20)
    pool.reserve(4096, 5)
    pool.reserve(10_000, 2)
    leased = pool.lease(4096)
    pool.trim(4096, 1)
    assert pool.allocated_bytes == 2 * 4096 + 2 * size_class(10_000)
    pool.trim(50_000, 0)
    assert leased is not None
    pool.release(leased)
    pool.close()
    assert device.leaks() == []


def warmed(device: SimDevice, sizes: dict[int, int], budget_bytes: int = 1 << 20) -> BlockPool:
    """A pool with so many free blocks of each size."""
    pool = BlockPool(device, budget_bytes)
    for size, count in sizes.items():
        pool.reserve(size, count)
    return pool


def test_free_blocks_of_another_pool_are_taken_over() -> None:
    """A model was warmed up beside the others; its requests find its blocks."""
    device = SimDevice()
    pool, other = BlockPool(device, 1 << 20), warmed(device, {4096: 1, 8192: 3})
    pool.adopt(other)
    blocks = [pool.lease(8192) for _ in range(3)]
    assert (pool.allocated_bytes, other.allocated_bytes) == (4096 + 3 * 8192, 0)
    other.close()
    for block in blocks:
        assert block is not None
        pool.release(block)
    pool.close()
    assert device.leaks() == []


def test_no_more_is_taken_over_than_one_model_needs() -> None:
    """A hundred reloads leave as many blocks as one; what is not taken goes with the other pool."""
    device = SimDevice()
    pool = BlockPool(device, 1 << 20)
    for _ in range(100):
        other = warmed(device, {8192: 3})
        pool.adopt(other)
        other.close()
    assert pool.allocated_bytes == 3 * 8192
    pool.close()
    assert device.leaks() == []


def test_the_budget_holds_for_what_is_taken_over() -> None:
    """What does not fit stays where it was."""
    device = SimDevice()
    pool, other = BlockPool(device, 2 * 8192), warmed(device, {8192: 5})
    pool.adopt(other)
    assert (pool.allocated_bytes, other.allocated_bytes) == (2 * 8192, 3 * 8192)
