"""ONNX Runtime as an engine, on the host device, held against ONNX Runtime called directly."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from headrace.engines.base import TensorSpec
from headrace.engines.ort import OrtOptions, open_signature
from headrace.errors import ConfigError, EngineError, RequestError
from helpers import onnx_models
from helpers.onnx_models import FLOAT, INT64, STRING, model, number, port, save
from helpers.ort_rig import Array, OrtRig, direct, raw_of
from load.models import CATALOGUE, DTYPES, random_array

ODD_FLOATS = [0.0, -0.0, 1e-45, 65504.0, np.inf, -np.inf, np.nan, -np.nan]


def saved(built: onnx.ModelProto, folder: Path) -> Path:
    return save(built, folder / "model.onnx")


def same(one: Array, other: Array) -> bool:
    """Equal shape, type and bits; NaNs and zeros with their signs."""
    if one.dtype == object:
        return one.shape == other.shape and one.tolist() == other.tolist()
    return (one.shape, one.dtype, one.tobytes()) == (other.shape, other.dtype, other.tobytes())


@pytest.mark.parametrize("datatype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (0, 5), (2, 0)], ids=str)
def test_every_datatype_comes_back_as_it_went_in(
    datatype: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Through an identity, bit for bit, empty tensors too."""
    path = saved(CATALOGUE[f"identity_{datatype.lower()}"].build(), tmp_path)
    sent = random_array(datatype, shape, 7)
    if datatype == "BYTES":  # ONNX strings are UTF-8
        sent = np.array([f"ä{i}" * i for i in range(sent.size)], object).reshape(shape)
    with OrtRig(path) as rig:
        assert rig.engine.signature.inputs == (TensorSpec("x", datatype, (None, None)),)
        (back,) = rig.run(sent)
    if datatype == "BYTES":
        sent = np.array([e.encode() for e in sent.ravel()], object).reshape(shape)
    assert same(back, sent)


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "BF16"])
def test_odd_floats_keep_their_bits(datatype: str, tmp_path: Path) -> None:
    """Signed zeros, infinities, NaNs and denormals are not touched."""
    path = saved(CATALOGUE[f"identity_{datatype.lower()}"].build(), tmp_path)
    sent = np.array([ODD_FLOATS]).astype(DTYPES[datatype][1])
    with OrtRig(path) as rig:
        assert same(rig.run(sent)[0], sent)


@pytest.mark.parametrize("name", ["mlp", "mlp_u8", "conv"])
def test_networks_answer_as_the_runtime_itself(name: str, tmp_path: Path) -> None:
    """Bit for bit, for several batch sizes, in any order, on one context."""
    catalogued = CATALOGUE[name]
    path = saved(catalogued.build(), tmp_path)
    with OrtRig(path) as rig:
        for rows in (3, 1, 3):
            sent = catalogued.sample(rows, seed=rows)
            assert same(rig.run(sent)[0], direct(path, sent)[0])


def test_more_threads_inside_a_run_change_no_bit(tmp_path: Path) -> None:
    """The option trades latency for throughput, not for other answers."""
    path = saved(CATALOGUE["mlp"].build(), tmp_path)
    sent = CATALOGUE["mlp"].sample(4)
    with OrtRig(path, OrtOptions(intra_op_threads=2)) as rig:
        assert same(rig.run(sent)[0], direct(path, sent)[0])


def test_two_contexts_in_two_threads(tmp_path: Path) -> None:
    """One session serves all slots: runs at the same time do not see each other."""
    path = saved(CATALOGUE["mlp"].build(), tmp_path)
    samples = [CATALOGUE["mlp"].sample(2, seed=seed) for seed in range(8)]
    right = [direct(path, sample)[0] for sample in samples]
    start = Barrier(2)

    with OrtRig(path) as rig:
        contexts = [rig.engine.open_context(rig.stream) for _ in range(2)]

        def work(place: int) -> bool:
            start.wait()
            turns = [(place + 2 * turn) % len(samples) for turn in range(200)]
            return all(
                same(rig.run(samples[turn], context=contexts[place])[0], right[turn])
                for turn in turns
            )

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(work, range(2))) == [True, True]
        for context in contexts:
            context.close()


def test_output_shapes_follow_from_names(tmp_path: Path) -> None:
    """An output dimension that has an input dimension's name has its size."""
    built = model(
        [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0, 2])],
        [port("x", FLOAT, ["rows", "columns", 3])],
        [port("y", FLOAT, ["columns", "rows", 3])],
    )
    with OrtRig(saved(built, tmp_path)) as rig:
        assert rig.engine.signature.inputs[0].shape == (None, None, 3)
        assert rig.engine.output_shapes([(2, 5, 3)]) == ((5, 2, 3),)
        sent = random_array("FP32", (2, 5, 3), 1)
        assert same(rig.run(sent)[0], sent.transpose(1, 0, 2))


def test_shapes_that_only_the_run_can_tell(tmp_path: Path) -> None:
    """They come with the run, as long or as short as it makes them."""
    path = saved(onnx_models.places(), tmp_path)
    with OrtRig(path) as rig:
        assert rig.engine.output_shapes([(4,)]) is None
        for values in ([0, 1, 0, 2], [0, 0], [], [5]):
            sent = np.array(values, np.float32)
            assert same(rig.run(sent)[0], np.array([np.flatnonzero(sent)], np.int64))


def grows() -> onnx.ModelProto:
    """Says that y is as long as x; it is twice as long."""
    return onnx_models.unchecked(
        [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)],
        [port("x", FLOAT, ["n"])],
        [port("y", FLOAT, ["n"])],
    )


def test_names_that_lie_are_found_out(tmp_path: Path) -> None:
    """A graph that gives an output the wrong name is tried at load, and not believed."""
    with OrtRig(saved(grows(), tmp_path)) as rig:
        assert rig.engine.output_shapes([(3,)]) is None
        sent = np.array([1, 2, 3], np.float32)
        assert same(rig.run(sent)[0], np.concatenate([sent, sent]))


def test_a_lie_that_zeros_do_not_show_is_an_error(tmp_path: Path) -> None:
    """An output that does not fit its place fails the run; it is never cut or filled up."""
    branches = [
        helper.make_graph([node], name, [], [port(node.output[0], FLOAT, None)])
        for name, node in (
            ("short", helper.make_node("Identity", ["x"], ["s"])),
            ("long", helper.make_node("Concat", ["x", "x"], ["l"], axis=0)),
        )
    ]
    nodes = [
        number("ten", 10),
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Less", ["most", "ten"], ["is_small"]),
        helper.make_node(
            "If", ["is_small"], ["y"], then_branch=branches[0], else_branch=branches[1]
        ),
    ]
    built = model(nodes, [port("x", FLOAT, ["n"])], [port("y", FLOAT, ["n"])])
    with OrtRig(saved(built, tmp_path)) as rig:
        small, large = np.array([1, 2], np.float32), np.array([1, 20], np.float32)
        assert same(rig.run(small)[0], small)
        with pytest.raises(EngineError, match="ONNX Runtime failed"):
            rig.run(large)
        assert same(rig.run(small)[0], small)


def test_an_output_that_is_an_input_is_sent_and_not_what_the_block_held(tmp_path: Path) -> None:
    """ONNX Runtime hands such an output on without writing it where it was bound to."""
    built = model(
        [helper.make_node("Neg", ["x"], ["y"])],
        [port("x", FLOAT, ["n", 4])],
        [port("y", FLOAT, ["n", 4]), port("x", FLOAT, ["n", 4])],
    )
    sent = random_array("FP32", (2, 4), 1)
    with OrtRig(saved(built, tmp_path)) as rig:
        negative, same_again = rig.run(sent)
    assert same(negative, -sent)
    assert same(same_again, sent)


def test_outputs_that_no_input_reaches_are_written(tmp_path: Path) -> None:
    """A weight or a constant that is an output lies in the block as any other."""
    weight = helper.make_tensor("w", FLOAT, [3], [1, 2, 3])
    built = model(
        [number("c", 5), helper.make_node("Neg", ["x"], ["y"])],
        [port("x", FLOAT, ["n"])],
        [port("y", FLOAT, ["n"]), port("w", FLOAT, [3]), port("c", FLOAT, [])],
        [weight],
    )
    with OrtRig(saved(built, tmp_path)) as rig:
        assert rig.engine.output_shapes([(1,)]) == ((1,), (3,), ())
        y, w, c = rig.run(np.array([4], np.float32))
    assert (y.tolist(), w.tolist(), c.shape, float(c)) == ([-4], [1, 2, 3], (), 5)


def test_numbers_out_of_strings_are_sent_and_not_what_the_block_held(tmp_path: Path) -> None:
    """A model with BYTES on one side only answers from the run, although its shapes are known."""
    built = model(
        [helper.make_node("Cast", ["c"], ["y"], to=FLOAT)],
        [port("c", STRING, ["n", 1])],
        [port("y", FLOAT, ["n", 1])],
    )
    with OrtRig(saved(built, tmp_path)) as rig:
        (numbers,) = rig.run(np.array([["1.5"], ["-2"]], object))
    assert numbers.tolist() == [[1.5], [-2.0]]


def test_strings_out_of_numbers(tmp_path: Path) -> None:
    """The other way about."""
    built = model(
        [helper.make_node("Cast", ["x"], ["c"], to=STRING)],
        [port("x", INT64, ["n"])],
        [port("c", STRING, ["n"])],
    )
    with OrtRig(saved(built, tmp_path)) as rig:
        assert rig.run(np.array([7, -12], np.int64))[0].tolist() == [b"7", b"-12"]


def test_bytes_that_are_no_text_are_the_caller_s_fault(tmp_path: Path) -> None:
    """ONNX strings are UTF-8; the text says where the bytes are not."""
    path = saved(CATALOGUE["identity_bytes"].build(), tmp_path)
    with OrtRig(path) as rig:
        with pytest.raises(RequestError, match=r"input 'x' .* not UTF-8 .* byte 2"):
            rig.run(np.array([[b"ok\xff"]], object))
        assert rig.run(np.array([[b"ok"]], object))[0].tolist() == [[b"ok"]]


@pytest.fixture(scope="module")
def strings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrtRig]:
    """An identity of strings."""
    path = saved(CATALOGUE["identity_bytes"].build(), tmp_path_factory.mktemp("strings"))
    with OrtRig(path) as rig:
        yield rig


@given(st.lists(st.text(max_size=3), max_size=4), st.integers(0, 5), st.binary(max_size=3))
def test_framed_elements_are_counted(
    strings: OrtRig, texts: list[str], count: int, tail: bytes
) -> None:
    """BYTES must hold exactly as many elements as the shape says, and nothing behind them."""
    elements = [text.encode() for text in texts]
    raw = raw_of(np.array([*elements, None], object)[:-1]) + tail
    if count == len(elements) and not tail:
        assert strings.run_raw([(1, count)], [raw])[0].tolist() == [elements]
    else:
        with pytest.raises(RequestError, match="input 'x': "):
            strings.run_raw([(1, count)], [raw])


def test_scalars(tmp_path: Path) -> None:
    """A tensor without dimensions has one element."""
    built = model(
        [helper.make_node("Neg", ["x"], ["y"])], [port("x", FLOAT, [])], [port("y", FLOAT, [])]
    )
    with OrtRig(saved(built, tmp_path)) as rig:
        assert rig.engine.output_shapes([()]) == ((),)
        assert same(rig.run(np.array(2.5, np.float32))[0], np.array(-2.5, np.float32))


def test_bf16_needs_shapes_that_are_known(tmp_path: Path) -> None:
    """It has no numpy type to be fed with: the load is refused with the way out."""
    built = model(
        [
            helper.make_node("Cast", ["x"], ["f"], to=FLOAT),
            helper.make_node("NonZero", ["f"], ["y"]),
        ],
        [port("x", TensorProto.BFLOAT16, ["n"])],
        [port("y", INT64, [1, "k"])],
    )
    with pytest.raises(ConfigError, match=r"model\.onnx: x: BF16 is served only"):
        OrtRig(saved(built, tmp_path))


def test_a_failed_run_is_told_in_one_line(tmp_path: Path) -> None:
    """With ONNX Runtime's own reason; the next run is not touched."""
    with OrtRig(saved(onnx_models.picks(), tmp_path)) as rig:
        with pytest.raises(EngineError) as caught:
            rig.run(np.array([1, 99], np.int64))
        assert str(caught.value).startswith("ONNX Runtime failed: ")
        assert "indices element out of data bounds, idx=99" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert rig.run(np.array([3, 0], np.int64))[0].tolist() == [30.0, 0.0]


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x08"], ids=repr)
def test_a_file_that_is_no_model(content: bytes, tmp_path: Path) -> None:
    """The error names the file and what ONNX Runtime says of it, in one line."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for load in (OrtRig, open_signature):
        with pytest.raises(ConfigError) as caught:
            load(path)
        assert caught.value.path == str(path)
        assert str(caught.value).startswith(f"{path}: ONNX Runtime cannot load it: ")
        assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Is told as that."""
    with pytest.raises(ConfigError, match="there is no such file"):
        OrtRig(tmp_path / "model.onnx")


def test_types_that_the_protocol_has_not(tmp_path: Path) -> None:
    """A sequence is no tensor: the load fails, naming the output and what is served."""
    sequence = onnx.ValueInfoProto(name="s")
    sequence.type.sequence_type.elem_type.tensor_type.elem_type = FLOAT
    built = onnx_models.unchecked(
        [helper.make_node("SequenceConstruct", ["x"], ["s"])], [port("x", FLOAT, ["n"])], [sequence]
    )
    with pytest.raises(
        ConfigError, match=r"output s: its type is seq\(tensor\(float\)\); headrace"
    ):
        OrtRig(saved(built, tmp_path))


def test_the_signature_without_the_engine_is_the_same(tmp_path: Path) -> None:
    """`inspect` and `check` see what the server sees."""
    path = saved(onnx_models.three(), tmp_path)
    with OrtRig(path) as rig:
        assert open_signature(path) == rig.engine.signature


def test_closed_is_closed(tmp_path: Path) -> None:
    """A second close does nothing, and later use is an error that says so."""
    rig = OrtRig(saved(onnx_models.two(), tmp_path))
    layout = rig.layout(np.zeros((1, 2), np.float32), np.zeros((1, 3), np.int64))
    rig.close()
    rig.context.close()
    rig.engine.close()
    with pytest.raises(EngineError, match="closed"):
        rig.context.bind(layout, [0, 0], [0, 0])
    with pytest.raises(EngineError, match=r"model\.onnx is closed"):
        rig.engine.open_context(rig.stream)


def test_a_binding_outlives_the_context_that_made_it(tmp_path: Path) -> None:
    """Blocks keep it for whichever slot of the engine takes them next."""
    rig = OrtRig(saved(onnx_models.negative(), tmp_path))
    layout = rig.layout(np.zeros(3, np.float32))
    block = rig.device.alloc_host(layout.size_bytes)
    block.view[: layout.inputs_end] = np.arange(3, dtype=np.float32).tobytes()
    first = rig.engine.open_context(rig.stream)
    places = [block.ptr + at for at in (layout.input_offsets[0], layout.output_offsets[0])]
    binding = first.bind(layout, places[:1], places[1:])
    first.close()
    rig.context.enqueue(binding)
    assert np.frombuffer(block.view[layout.outputs_start :], np.float32).tolist() == [0, -1, -2]
    block.close()
    rig.close()


@pytest.mark.parametrize("built", [onnx_models.two(), grows()], ids=["bound", "fed"])
def test_the_model_goes_though_blocks_keep_its_bindings(
    built: onnx.ModelProto, tmp_path: Path
) -> None:
    """Staging blocks outlive a model that is unloaded; its weights must not live on in them."""
    rig = OrtRig(saved(built, tmp_path))
    shapes = [tuple(dim or 1 for dim in spec.shape) for spec in rig.engine.signature.inputs]
    dtypes = [DTYPES[spec.datatype][1] for spec in rig.engine.signature.inputs]
    layout = rig.layout(*map(np.zeros, shapes, dtypes))
    block = rig.device.alloc_host(max(layout.size_bytes, 1))
    places = [block.ptr] * len(shapes), [block.ptr] * len(rig.engine.signature.outputs)
    kept = rig.context.bind(layout, *places)
    opened = rig.context._opened
    assert opened is not None
    session = weakref.ref(opened.session)
    del opened
    block.close()
    rig.close()
    assert session() is None
    assert kept.prepared is None
