"""Ranges of shapes are fitted to the inputs of a network, or come from a configuration."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from headrace.building.notation import Bounds
from headrace.building.shapes import NetworkTensor, fit, from_config, require
from headrace.errors import ConfigError
from headrace_proto.v1 import model_config_pb2 as config_pb

IMAGE = NetworkTensor("image", "FLOAT", (-1, 3, -1, -1), is_shape_tensor=False)
ROWS = NetworkTensor("rows", "FLOAT", (-1, 4), is_shape_tensor=False)
FIXED = NetworkTensor("fixed", "FLOAT", (2, 4), is_shape_tensor=False)
SIZE = NetworkTensor("size", "INT64", (2,), is_shape_tensor=True)
PREFERS_TOO_MANY = """
    max_batch_size: 4
    dynamic_batching { preferred_batch_size: 8 }
    input { name: "image" dims: [3, 2, 2] }
"""


def config(text: str) -> config_pb.ModelConfig:
    return text_format.Parse(text, config_pb.ModelConfig())


def same(*sizes: int) -> Bounds:
    return Bounds(sizes, sizes, sizes)


def test_only_inputs_that_want_bounds_are_kept() -> None:
    """A fixed input may be named with its own shape, and needs no bounds."""
    given = {"rows": same(8, 4), "fixed": same(2, 4), "size": same(1, 1)}
    (found,) = fit([SIZE, FIXED, ROWS], [given])
    assert list(found) == ["size", "rows"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rows": same(8, 5)}, "8x5 for the input 'rows', which has the shape ?x4"),
        ({"rows": same(8)}, "8 for the input 'rows', which has the shape ?x4"),
        ({"row": same(8, 4)}, "there is no input 'row'; the model has 'rows', 'fixed'"),
        ({"rows": same(8, 4), "fixed": same(1, 4)}, "1x4 for the input 'fixed'"),
        ({"fixed": same(2, 4)}, "leaves out the input 'rows' of shape ?x4"),
    ],
)
def test_shapes_that_the_model_cannot_have_are_refused(given: dict[str, Bounds], told: str) -> None:
    """The error has the input, the shape that was asked for and the one that it has."""
    with pytest.raises(ConfigError) as caught:
        fit([ROWS, FIXED], [given])
    assert told in str(caught.value)


def test_a_configuration_gives_one_to_max_batch_size_rows() -> None:
    """The optimum is the largest preferred batch; fixed dims of the configuration are taken."""
    said = config(
        "max_batch_size: 32 dynamic_batching { preferred_batch_size: [8, 16] } "
        'input { name: "image" dims: [3, 224, 224] }'
    )
    (found,) = from_config([IMAGE, ROWS, FIXED], said, "config.pbtxt")
    tail = (3, 224, 224)
    assert found == {
        "image": Bounds((1, *tail), (16, *tail), (32, *tail)),
        "rows": Bounds((1, 4), (16, 4), (32, 4)),
    }


def test_without_batching_dims_are_whole_shapes() -> None:
    """With max_batch_size 0 the configuration's dims are the shape, and the only one."""
    said = config('input { name: "rows" dims: [6, 4] }')
    assert from_config([ROWS], said, "config.pbtxt") == ({"rows": same(6, 4)},)


def test_reshaped_dims_are_the_models() -> None:
    """The configuration shows clients other dims than the model has; the model's count."""
    flat = NetworkTensor("flat", "FLOAT", (-1, -1), is_shape_tensor=False)
    said = config('max_batch_size: 2 input { name: "flat" dims: [2, 8] reshape { shape: [16] } }')
    (found,) = from_config([flat], said, "config.pbtxt")
    assert found["flat"].maximum == (2, 16)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_batch_size: 4", "does not fix the input 'image' of shape ?x3x?x?"),
        ('max_batch_size: 4 input { name: "image" dims: [3, -1, -1] }', "--min image:1x3x1x1"),
        ('max_batch_size: 4 input { name: "image" dims: [3] }', "?x3 with the batch dimension"),
        (PREFERS_TOO_MANY, "optimum 8x3x2x2 and maximum 4x3x2x2"),
    ],
)
def test_a_configuration_that_does_not_suffice_says_what_is_missing(text: str, told: str) -> None:
    """The error has the input and an example of the flags that would do."""
    with pytest.raises(ConfigError) as caught:
        from_config([IMAGE], config(text), "config.pbtxt")
    assert told in str(caught.value)
    assert "config.pbtxt" in str(caught.value)


def test_without_anything_the_flags_are_named() -> None:
    """The text can be copied: it has the flags for the first input that wants bounds."""
    with pytest.raises(ConfigError, match="--min rows:1x4 --opt rows:8x4 --max rows:32x4"):
        require([FIXED, ROWS])
    require([FIXED])


def test_values_of_shape_tensors_cannot_come_from_a_configuration() -> None:
    """They have no place there, so the flags are named."""
    with pytest.raises(ConfigError, match="shape tensor 'size': give the bounds of its values"):
        from_config([SIZE], config("max_batch_size: 4"), "config.pbtxt")
