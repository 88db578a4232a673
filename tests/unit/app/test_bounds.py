"""What is kept for shapes that clients choose is bounded."""

from __future__ import annotations

from headrace.device.sim import SimDevice
from headrace.engines.base import Binding
from headrace.engines.layout import plan_layout
from headrace.model import MAX_LAYOUTS
from headrace.slots.blocks import MAX_BINDINGS, BlockPool
from helpers.served import served


def test_layouts_of_a_model() -> None:
    """The oldest makes room, and is laid out alike when it comes again."""
    model = served("x FP32[?,?]", "y FP32[?,?]")
    first = model.plan([(1, 1)], [4])
    assert model.plan([(1, 1)], [4]) is first
    for width in range(2, MAX_LAYOUTS + 2):
        model.plan([(1, width)], [4 * width])
    assert len(model._layouts) == MAX_LAYOUTS
    again = model.plan([(1, 1)], [4])
    assert again is not first
    assert again.size_bytes == first.size_bytes


def test_bindings_of_a_block() -> None:
    """A block that meets many layouts does not keep a binding of each."""
    device = SimDevice()
    pool = BlockPool(device, 1 << 20)
    block = pool.lease(1)
    assert block is not None
    for size in range(3 * MAX_BINDINGS):
        layout = plan_layout([(size,)], [size], [(size,)], [size])
        binding = Binding(layout, (), ())
        block.keep_binding(layout, binding)
        assert block.bindings[layout] is binding
        assert len(block.bindings) <= MAX_BINDINGS
    pool.release(block)
    pool.close()
    device.close()
