"""ModelInfer of words, and of classes in place of values."""

from __future__ import annotations

import numpy as np
import tritonclient.grpc as triton
from outcome import CALL_S, Cases, Facts, Server, numbers, tensor, told
from tritonclient.grpc import service_pb2 as pb

cases = Cases()


@cases("infer of words")
def _words(server: Server) -> Facts:
    words = np.array([[b"ab"], [b""], [b"\xff\x00"]], np.object_)
    answer = server.client.infer("words", [tensor("x", "BYTES", words)], client_timeout=CALL_S)
    same = answer.as_numpy("y").tolist() == words.tolist()
    return {**told(answer.get_response()), "same": same}


@cases("infer of words that are text")
def _text(server: Server) -> Facts:
    words = np.array([["é漢".encode()], [b"a"]], np.object_)
    answer = server.client.infer("words", [tensor("x", "BYTES", words)], client_timeout=CALL_S)
    return {"same": answer.as_numpy("y").tolist() == words.tolist()}


@cases("infer of classes with labels")
def _classes(server: Server) -> Facts:
    x = np.array([[0.5, 3, -1, 3.25, 2], [9, 8, 7, 6, 5]], np.float32)
    wanted = [triton.InferRequestedOutput("y", class_count=2)]
    answer = server.client.infer(
        "labelled", [tensor("x", "FP32", x)], outputs=wanted, client_timeout=CALL_S
    )
    return {**told(answer.get_response()), "classes": _text_of(answer.as_numpy("y"))}


@cases("infer of classes of a model without batches")
def _classes_of_whole(server: Server) -> Facts:
    wanted = [triton.InferRequestedOutput("y", class_count=3)]
    x = tensor("x", "FP32", numbers(2, 3))
    answer = server.client.infer("whole", [x], outputs=wanted, client_timeout=CALL_S)
    return {**told(answer.get_response()), "classes": _text_of(answer.as_numpy("y"))}


@cases("infer of classes of words")
def _classes_of_words(server: Server) -> Facts:
    wanted = [triton.InferRequestedOutput("y", class_count=1)]
    x = tensor("x", "BYTES", np.array([[b"a"]], np.object_))
    return told(server.client.infer("words", [x], outputs=wanted).get_response())


def _text_of(array: np.ndarray) -> list[object]:
    return np.vectorize(bytes.decode)(array).tolist()


def _words_case(name: str, raw: bytes, shape: list[int]) -> None:
    def case(server: Server) -> Facts:
        request = pb.ModelInferRequest(model_name="words", raw_input_contents=[raw])
        request.inputs.add(name="x", datatype="BYTES", shape=shape)
        return told(server.infer(request))

    cases(f"infer of words {name}")(case)


_words_case("with a length that is cut off", b"\2\0\0", [1, 1])
_words_case("with a length that lies", b"\xff\xff\xff\xffa", [1, 1])
_words_case("with bytes left over", b"\1\0\0\0a\0", [1, 1])
_words_case("fewer than the shape says", b"\1\0\0\0a", [2, 1])
_words_case("more than the shape says", b"\1\0\0\0a\1\0\0\0b", [1, 1])
