"""The table of requests that are wrong: what each is, its gRPC status and a piece of its text.

A, B and the builders of requests are in `messages`.
"""

from __future__ import annotations

from helpers.bad_messages import broken_messages, other_calls, shared_memory
from helpers.bad_request import INVALID_ARGUMENT, NOT_FOUND, Bad
from helpers.messages import A, B, Parameter, a, b, infer, one, pair, tensor


def _wrong(name: str, text: str, message: bytes) -> Bad:
    return Bad(name, INVALID_ARGUMENT, text, message)


def _datatypes() -> list[Bad]:
    text = "data-type is"
    return [
        _wrong("datatype of another size", text, pair([a("FP64"), b()], [bytes(32), B])),
        _wrong("datatype of the same size", text, pair([a("INT32"), b()])),
        _wrong("datatype missing", text, pair([a(""), b()])),
        _wrong("datatype unknown", text, pair([a("FP33"), b()])),
        _wrong("datatype in lower case", text, pair([a("fp32"), b()])),
        _wrong("datatype of the config file", text, pair([a("TYPE_FP32"), b()])),
        _wrong("bytes for floats", text, pair([a("BYTES"), b()])),
    ]


def _shapes() -> list[Bad]:
    shape, batch, big = "unexpected shape for input", "batch-size must be <=", 2**62
    return [
        _wrong("rank too low", "input 'a'", pair([a(shape=[4]), b()])),
        _wrong("rank too high", shape, pair([a(shape=[1, 4, 1]), b()])),
        _wrong("no shape", "input 'a'", pair([a(shape=[]), b()])),
        _wrong("another width", shape, pair([a(shape=[1, 5]), b()], [bytes(20), B])),
        _wrong("width zero", shape, pair([a(shape=[1, 0]), b()], [b"", B])),
        _wrong("width -1", "", pair([a(shape=[1, -1]), b()])),
        _wrong("width -4", shape, pair([a(shape=[1, -4]), b()])),
        _wrong("rows -1", "", pair([a(shape=[-1, 4]), b()])),
        _wrong("free width -1", "", one("FP32", [1, -1], bytes(4))),
        _wrong("both negative", "", one("FP32", [-2, -8], bytes(64))),
        _wrong("smallest int64", "", one("FP32", [1, -(2**63)], bytes(4))),
        _wrong("rows zero", "", pair([a(shape=[0, 4]), b(shape=[0, 2])], [b"", b""])),
        _wrong(
            "rows over the maximum",
            batch,
            pair([a(shape=[9, 4]), b(shape=[9, 2])], [bytes(144), bytes(72)]),
        ),
        _wrong("rows differ", "batch size", pair([a(shape=[2, 4]), b()], [bytes(32), B])),
        _wrong("2^62 elements", "", one("FP32", [1, big], bytes(4))),
        _wrong("2^62 elements, no bytes", "", one("FP32", [1, big], b"")),
        _wrong("product overflows to 0", "", one("FP32", [4, big], b"")),
        _wrong("byte size overflows to 0", "", one("FP64", [1, 2**61], b"")),
        _wrong("byte size overflows to 8", "", one("FP64", [1, 2**61 + 1], bytes(8))),
        _wrong("largest int64 twice", "", one("UINT8", [2**63 - 1, 2**63 - 1], b"x")),
        _wrong("a huge BYTES tensor", "", one("BYTES", [1, 2**40], b"\0\0\0\0")),
        _wrong("ranks by the thousand", shape, one("FP32", [1] * 5000, bytes(4))),
    ]


def _sizes() -> list[Bad]:
    size, both = "byte size mismatch", "contents field must not be specified"
    typed = {"fp32_contents": [0.0] * 4}
    return [
        _wrong("one byte short", size, pair(raw=[A[1:], B])),
        _wrong("one byte more", size, pair(raw=[A + b"x", B])),
        _wrong("no bytes", size, pair(raw=[b"", B])),
        _wrong("tensors swapped", size, pair(raw=[B, A])),
        _wrong("one tensor short", "", pair(raw=[A])),
        _wrong("one tensor more", "", pair(raw=[A, B, A])),
        _wrong("raw and typed", both, pair([a(contents=typed), b()])),
        _wrong("raw and typed by one each", "", pair([a(contents=typed), b()], [B])),
        _wrong("neither raw nor typed", "", pair(raw=[])),
    ]


def _typed() -> list[Bad]:
    return [
        _wrong("typed, one short", "", one("FP32", [1, 4], fp32_contents=[0.0] * 3)),
        _wrong("typed, one more", "", one("FP32", [1, 4], fp32_contents=[0.0] * 5)),
        _wrong("typed in another field", "", one("FP32", [1, 2], int64_contents=[1, 2])),
        _wrong(
            "typed in two fields", "", one("FP32", [1, 1], fp32_contents=[1], fp64_contents=[1])
        ),
        _wrong("typed INT8 of 128", "INT8", one("INT8", [1, 1], int_contents=[128])),
        _wrong("typed INT8 of -129", "INT8", one("INT8", [1, 1], int_contents=[-129])),
        _wrong("typed UINT8 of 256", "UINT8", one("UINT8", [1, 1], uint_contents=[256])),
        _wrong("typed INT16 of 32768", "INT16", one("INT16", [1, 1], int_contents=[32768])),
        _wrong("typed UINT16 of 65536", "UINT16", one("UINT16", [1, 1], uint_contents=[65536])),
        _wrong("typed FP16", "FP16", one("FP16", [1, 1], fp32_contents=[1.0])),
        _wrong("typed BF16", "BF16", one("BF16", [1, 1], fp32_contents=[1.0])),
        _wrong("typed and huge", "", one("INT32", [1, 2**40], int_contents=[1])),
        _wrong("typed and overflowing", "", one("INT32", [4, 2**62], int_contents=[])),
        _wrong("typed BYTES, one short", "", one("BYTES", [1, 2], bytes_contents=[b"a"])),
    ]


def _byte_strings() -> list[Bad]:
    return [
        _wrong("BYTES prefix cut", "", one("BYTES", [1, 1], b"\1\0\0")),
        _wrong("BYTES element cut", "", one("BYTES", [1, 1], b"\5\0\0\0abcd")),
        _wrong("BYTES element trailed", "", one("BYTES", [1, 1], b"\1\0\0\0ab")),
        _wrong("BYTES of 4 GiB", "", one("BYTES", [1, 1], b"\xff\xff\xff\xffab")),
        _wrong("BYTES one short", "", one("BYTES", [1, 2], b"\1\0\0\0a")),
        _wrong("BYTES one more", "", one("BYTES", [1, 1], b"\1\0\0\0a" * 2)),
        _wrong("BYTES without bytes", "", one("BYTES", [1, 1], b"")),
    ]


def _names() -> list[Bad]:
    unexpected = "unexpected inference input"
    many = [tensor(f"x{index}", "FP32", [1]) for index in range(300)]
    return [
        _wrong("input missing", "expected 2 inputs but got 1", pair([a()], [A])),
        _wrong("no inputs", "expected 2 inputs but got 0", pair([], [])),
        _wrong("input more", "'c'", pair([a(), b(), a(name="c")], [A, B, A])),
        _wrong("input unknown", unexpected, pair([a(name="z"), b()])),
        _wrong("input without a name", unexpected, pair([a(name=""), b()])),
        _wrong("input given twice", "", pair([a(), a()], [A, A])),
        _wrong("input given twice beside the rest", "", pair([a(), a(), b()], [A, A, B])),
        _wrong("300 inputs", "", infer("pair", many, [bytes(4)] * 300)),
        _wrong("output unknown", "unexpected inference output", pair(outputs=["z"])),
        _wrong("output without a name", "unexpected inference output", pair(outputs=[""])),
        _wrong("an input as output", "unexpected inference output", pair(outputs=["a"])),
        _wrong("output asked for twice", "", pair(outputs=["p", "p"])),
        _wrong("300 outputs", "", pair(outputs=["p"] * 300)),
    ]


def _models() -> list[Bad]:
    def ask(name: str, code: int, text: str, model: str = "pair", version: str = "") -> Bad:
        return Bad(name, code, text, pair(model=model, version=version))

    return [
        ask("model unknown", NOT_FOUND, "unknown model: 'nothing' is not found", "nothing"),
        ask("model without a name", NOT_FOUND, "", ""),
        ask("model named as a path", NOT_FOUND, "is not found", "../../etc/passwd"),
        ask("model named as a format", NOT_FOUND, "%s{0}%n", "%s{0}%n"),
        ask("model named with a new line", NOT_FOUND, "is not found", "a\r\nb\0c"),
        ask("model with a name of 100,000", NOT_FOUND, "", "m" * 100_000),
        ask("version unknown", NOT_FOUND, "version 7 is not found", version="7"),
        ask("version in letters", INVALID_ARGUMENT, "version", version="abc"),
        ask("version negative", INVALID_ARGUMENT, "version", version="-1"),
        ask("version with a point", INVALID_ARGUMENT, "version", version="1.0"),
        ask("version of 20 digits", INVALID_ARGUMENT, "version", version="9" * 20),
        ask("version with a blank", INVALID_ARGUMENT, "version", version=" 1"),
        ask("version in other digits", INVALID_ARGUMENT, "version", version="\u0661"),
    ]


def _parameters() -> list[Bad]:
    def ask(name: str, text: str, **parameters: Parameter) -> Bad:
        return _wrong(name, text, pair(parameters=parameters))

    huge = (2**64 - 1).to_bytes(8, "little")
    return [
        ask("sequence_start a number", "sequence_start", sequence_start=1),
        ask("sequence_end a string", "sequence_end", sequence_end="true"),
        ask("sequence_id a float", "sequence_id", sequence_id=1.0),
        ask("timeout a string", "timeout", timeout="1s"),
        ask("priority a bool", "priority", priority=True),
        ask("reserved name unknown", "triton_", triton_secret=True),
        ask("reserved name long on the wire", "triton_", **{"triton_" + "é" * 2000: True}),
        ask("reserved name of another type", "triton_", triton_enable_empty_final_response=1),
        ask("a user's uint64", "", mine=huge),
        ask("a parameter without a value", "", mine=None),
        _wrong(
            "classification a string",
            "classification",
            pair(outputs=["p"], output_parameters={"classification": "3"}),
        ),
    ]


BAD_REQUESTS: tuple[Bad, ...] = (
    *_datatypes(),
    *_shapes(),
    *_sizes(),
    *_typed(),
    *_byte_strings(),
    *_names(),
    *_models(),
    *_parameters(),
    *shared_memory(),
    *broken_messages(),
    *other_calls(),
)
