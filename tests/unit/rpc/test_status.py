"""The table from errors to gRPC's status codes: complete, and silent about our inside."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import errors
from headrace.config import ServerConfig
from headrace.errors import (
    AbandonedError,
    ConfigError,
    DeviceError,
    EngineError,
    ExistsError,
    ExpiredError,
    HeadraceError,
    NotFoundError,
    OverloadedError,
    RequestError,
    TooLargeError,
    UnavailableError,
    UnsupportedError,
)
from headrace.rpc.status import (
    MAX_TEXT_BYTES,
    NO_RETRY,
    OVERLOAD_STATUS,
    STATUS,
    shortened,
    status_of,
)

Code = grpc.StatusCode

# What clients rely on, written down a second time on purpose.
EXPECTED = {
    RequestError: Code.INVALID_ARGUMENT,
    NotFoundError: Code.NOT_FOUND,
    ExistsError: Code.ALREADY_EXISTS,
    UnsupportedError: Code.UNIMPLEMENTED,
    TooLargeError: Code.RESOURCE_EXHAUSTED,
    OverloadedError: Code.UNAVAILABLE,
    UnavailableError: Code.UNAVAILABLE,
    ExpiredError: Code.DEADLINE_EXCEEDED,
    AbandonedError: Code.CANCELLED,
    ConfigError: Code.INTERNAL,
    EngineError: Code.INTERNAL,
    DeviceError: Code.INTERNAL,
    HeadraceError: Code.INTERNAL,
}


def classes(root: type[HeadraceError] = HeadraceError) -> Iterator[type[HeadraceError]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from classes(kind)


def test_every_error_has_an_entry() -> None:
    """A new class of error cannot be forgotten in the table."""
    assert set(STATUS) == set(classes())


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda kind: kind.__name__)
def test_codes(kind: type[HeadraceError]) -> None:
    """Each error ends its call with the code that clients know, and with its own text."""
    status = status_of(kind("what came and what was expected"))
    assert (status.code, status.text) == (EXPECTED[kind], "what came and what was expected")


def test_a_class_of_tomorrow_is_what_its_base_is() -> None:
    """A subclass that the table does not know gets the code of the nearest class that it does."""

    class OddShapeError(RequestError):
        pass

    assert status_of(OddShapeError("odd")).code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "bug", [KeyError("secret"), ValueError("/etc/secret"), AssertionError(), OSError(2, "secret")]
)
def test_bugs_tell_nothing(bug: Exception) -> None:
    """What is not ours to raise is INTERNAL, and its text stays in the log."""
    status = status_of(bug)
    assert status.code is Code.INTERNAL
    assert "secret" not in status.text
    assert type(bug).__name__ not in status.text
    assert not status.no_retry


@pytest.mark.parametrize("word", OVERLOAD_STATUS)
def test_overload_is_what_the_operator_chose(word: str) -> None:
    """Only a refusal for want of room follows the option, and only it asks not to be retried."""
    chosen = OVERLOAD_STATUS[word]
    refused = status_of(OverloadedError("full"), chosen)
    assert (refused.code.name, refused.no_retry) == (word, True)
    others = [kind for kind in EXPECTED if kind is not OverloadedError]
    answers = [status_of(kind("x"), chosen) for kind in others]
    assert [each.code for each in answers] == [EXPECTED[kind] for kind in others]
    assert not any(each.no_retry for each in answers)


def test_each_word_of_the_option_has_a_code() -> None:
    """What the option accepts, the table knows."""
    for word in OVERLOAD_STATUS:
        config = ServerConfig(overload_status=word)  # type: ignore[arg-type]
        assert config.overload_status == word
    with pytest.raises(ConfigError):
        ServerConfig(overload_status="ABORTED")  # type: ignore[arg-type]


def test_push_back_says_never() -> None:
    """A negative push-back is gRPC's word for "do not retry"."""
    ((key, value),) = NO_RETRY
    assert key == "grpc-retry-pushback-ms"
    assert int(value) < 0


def on_the_wire(text: str) -> int:
    """Bytes of a text in the trailers: gRPC percent-encodes what is not printable ASCII."""
    return len(quote(text, safe="".join(map(chr, range(0x20, 0x7F))).replace("%", "")))


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), st.integers(1, 1000))
def test_texts_fit_every_client(text: str, times: int) -> None:
    """A text that is long on the wire is cut at a character's border; a short one stays."""
    repeated = text * times
    cut = shortened(repeated)
    assert on_the_wire(cut) <= MAX_TEXT_BYTES
    if on_the_wire(repeated) <= MAX_TEXT_BYTES - 3:
        assert cut == repeated
    elif cut != repeated:
        assert cut.endswith("...")
        assert repeated.startswith(cut[:-3])
        assert on_the_wire(cut) > MAX_TEXT_BYTES - 16


@pytest.mark.parametrize("length", [10, 10_000])
def test_texts_that_are_no_unicode_can_be_sent(length: int) -> None:
    """A file name that is not UTF-8 comes as lone surrogates, which gRPC could not encode."""
    shortened("\udcff" * length).encode("utf-8")
