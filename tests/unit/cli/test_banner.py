"""The banner: all addresses and models on any output, and one last line for programs."""

from __future__ import annotations

import io
import re

from headrace.banner import OFF, Banner, BannerModel, print_banner

DIGITS = BannerModel("digits", "3", "onnxruntime_onnx", 64, "2")
EVIL = BannerModel("[red]e\x1b[31mvil", "1", "tensorrt_plan", 0, "1 inline")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def banner_text(stream: io.StringIO, metrics: str = "127.0.0.1:8002") -> str:
    banner = Banner(
        grpc="127.0.0.1:8001",
        metrics=metrics,
        transport="grpcio",
        device="host",
        models=(DIGITS, EVIL),
        failures={"broken": "model.onnx: is\nempty"},
    )
    print_banner(banner, stream)
    return stream.getvalue()


def test_plain_output_is_plain() -> None:
    """In a pipe there are no escapes, one line for each model, columns aligned."""
    text = banner_text(io.StringIO())
    assert "\x1b" not in text
    assert "127.0.0.1:8001 (grpcio)" in text
    assert "http://127.0.0.1:8002/metrics" in text
    header, digits, evil = (
        line for line in text.splitlines() if line.startswith(("model ", "digits", "[red]"))
    )
    assert digits.split() == ["digits", "3", "onnxruntime_onnx", "64", "2"]
    assert evil.split() == [r"[red]e\x1b[31mvil", "1", "tensorrt_plan", "-", "1", "inline"]
    assert header.index("platform") == digits.index("onnxruntime") == evil.index("tensorrt")
    assert r"broken  model.onnx: is\nempty" in text


def test_a_terminal_gets_the_same_facts() -> None:
    """Drawn or plain, every name and number is there, and names are no markup."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", banner_text(Terminal()))
    assert "\x1b" not in text
    for fact in ("digits", "onnxruntime_onnx", r"[red]e\x1b[31mvil", "127.0.0.1:8001", "host"):
        assert fact in text


def test_the_last_line_is_for_programs() -> None:
    """Exactly one line says that the server is ready and where; metrics that are off are "-"."""
    for metrics in ("127.0.0.1:8002", OFF):
        for stream in (io.StringIO(), Terminal()):
            lines = banner_text(stream, metrics).splitlines()
            ready = [line for line in lines if line.startswith("headrace ready")]
            assert ready == [f"headrace ready: grpc=127.0.0.1:8001 metrics={metrics}"]
            assert lines[-1] == ready[0]
