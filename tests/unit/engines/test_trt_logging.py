"""TensorRT's logger and recorder: every error kept, the first one told, from any thread."""

from __future__ import annotations

import logging
import threading

import pytest

from headrace.engines.trt_logging import MAX_ERRORS, ErrorTexts, make_logger, make_recorder
from helpers import fake_tensorrt as trt

CODE = trt.ErrorCodeTRT.INVALID_ARGUMENT


def test_the_first_error_is_told_once_and_in_one_line() -> None:
    """Echoes of a failure do not hide it, and what was told is forgotten."""
    texts = ErrorTexts()
    recorder = make_recorder(trt, texts)
    assert recorder.report_error(CODE, "the cause\n   of it")
    assert recorder.report_error(CODE, "an echo")
    assert texts.take_first() == "the cause of it"
    assert texts.take_first() == ""
    assert texts.is_empty


def test_a_recorder_answers_as_tensorrt_asks() -> None:
    """Number, code and text of each error can be read back, under both names of the count."""
    recorder = make_recorder(trt, ErrorTexts())
    assert issubclass(type(recorder), trt.IErrorRecorder)
    recorder.report_error(CODE, "first")
    recorder.report_error(trt.ErrorCodeTRT.UNSPECIFIED_ERROR, "second")
    assert recorder.num_errors() == recorder.get_num_errors() == 2
    assert recorder.get_error_desc(1) == "second"
    assert recorder.get_error_code(0) is CODE
    assert not recorder.has_overflowed()
    recorder.clear()
    assert recorder.num_errors() == 0


def test_errors_that_nobody_asks_for_are_bounded() -> None:
    """An engine that fails without end fills no memory, and the first error is still the first."""
    texts = ErrorTexts()
    recorder = make_recorder(trt, texts)
    for number in range(10 * MAX_ERRORS):
        recorder.report_error(CODE, f"error {number}")
    assert recorder.num_errors() == MAX_ERRORS
    assert recorder.has_overflowed()
    assert texts.take_first() == "error 0"
    assert not recorder.has_overflowed()


def test_threads_lose_no_error() -> None:
    """Errors reported by several threads at once are all there, whole."""
    texts = ErrorTexts()
    recorder = make_recorder(trt, texts)
    each = MAX_ERRORS // 8
    start = threading.Barrier(8)

    def report(thread: int) -> None:
        start.wait()
        for number in range(each):
            recorder.report_error(CODE, f"{thread} {number}")

    threads = [threading.Thread(target=report, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {f"{thread} {number}" for thread in range(8) for number in range(each)}
    assert {text for _code, text in texts.entries()} == expected


@pytest.mark.parametrize(
    ("severity", "level"),
    [
        ("INTERNAL_ERROR", logging.ERROR),
        ("ERROR", logging.ERROR),
        ("WARNING", logging.WARNING),
        ("INFO", logging.INFO),
        ("VERBOSE", logging.DEBUG),
    ],
)
def test_log_lines_keep_their_severity(
    severity: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """TensorRT's lines come with the plan's name and their level; errors are kept besides."""
    texts = ErrorTexts()
    logger = make_logger(trt, "model.plan", texts)
    assert isinstance(logger, trt.ILogger)
    with caplog.at_level(logging.DEBUG, "headrace"):
        logger.log(trt.ILogger.Severity[severity], "a line with %s in it")
    (record,) = caplog.records
    assert (record.levelno, record.message) == (level, "model.plan: a line with %s in it")
    assert texts.is_empty == (level < logging.ERROR)
