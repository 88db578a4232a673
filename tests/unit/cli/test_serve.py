"""`headrace serve` takes Triton's flags, explains itself, and ends usage errors with code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import main
from headrace.cli.options import spell_out
from headrace.cli.serve import serve
from headrace.config import OPTIONS, ServerConfig, load


def invoke(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def config_of(*args: str) -> ServerConfig:
    """Return the configuration that a command line leads to."""
    params = dict(serve.make_context("serve", list(args)).params)
    files = params.pop("model_files")
    return load(params, {}, config_file=params.pop("config_file"), model_files=files)


def test_every_setting_is_in_help_with_its_default() -> None:
    """Each flag, each group and each default is shown."""
    text = invoke("serve", "--help").output
    words = " ".join(text.split())
    for option in OPTIONS:
        if option.declaration.is_argument:
            continue
        assert all(flag in words for flag in option.shown_flags), option.name
        assert f"\n{option.group}:" in text
    assert "[default: 8001]" in words
    assert "HEADRACE_GRPC_PORT" in words
    assert "[MODEL_FILE]" in words


def test_help_of_every_command() -> None:
    """The group lists four commands, and each of them explains itself."""
    text = invoke("--help").output
    for command in ("serve", "inspect", "check", "version"):
        assert f"\n  {command} " in text
        result = invoke(command, "--help")
        assert result.exit_code == 0
        assert result.output.startswith(f"Usage: main {command}")


def test_help_does_not_import_what_only_serving_needs() -> None:
    """The command line is there at once: no engine, no transport, no numpy."""
    heavy = {"grpc", "numpy", "onnxruntime", "google.protobuf", "prometheus_client", "rich"}
    code = (
        "import sys; from headrace.cli import main; "
        "from click.testing import CliRunner; "
        "assert CliRunner().invoke(main, ['serve', '--help']).exit_code == 0; "
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert result.stdout.strip() == "[]"


def test_flags_of_triton(tmp_path: Path) -> None:
    """A command line written for Triton is understood as it is meant."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    config = config_of(
        f"--model-repository={tmp_path}/a",
        "--model-store",
        f"{tmp_path}/b",
        "--grpc-port",
        "9001",
        "--metrics-port=9002",
        "--allow-gpu-metrics=false",
        "--exit-on-error",
        "false",
        "--strict-readiness=0",
        "--strict-model-config=true",
        "--pinned-memory-pool-byte-size=1048576",
        "--grpc-keepalive-time=10000",
        "--exit-timeout-secs=5",
        "--log-verbose=1",
        "--log-info=false",
        "--id=mine",
    )
    assert config.model_repository == (tmp_path / "a", tmp_path / "b")
    assert (config.grpc_port, config.metrics_port) == (9001, 9002)
    assert not config.allow_gpu_metrics
    assert not config.exit_on_error
    assert not config.strict_readiness
    assert config.disable_auto_complete_config
    assert config.pinned_memory_pool_bytes == 1_048_576
    assert config.grpc_keepalive_time_ms == 10_000
    assert config.exit_timeout_s == 5
    assert (config.log_verbose, config.log_info, config.server_id) == (1, False, "mine")


def test_switches_stand_alone_or_take_a_word(tmp_path: Path) -> None:
    """A lone switch means true and leaves the model file behind it alone."""
    model = tmp_path / "m.onnx"
    model.touch()
    config = config_of("--allow-host-code", str(model))
    assert config.allow_host_code
    assert config.model_files == (model,)
    assert not config_of("--allow-metrics", "false", str(model)).allow_metrics
    assert not config_of("--allow-metrics=no").allow_metrics
    assert config_of("--disable-auto-complete-config").disable_auto_complete_config


@pytest.mark.parametrize(
    ("args", "spelled"),
    [
        (["--allow-metrics"], ["--allow-metrics=true"]),
        (["--allow-metrics", "FALSE"], ["--allow-metrics=FALSE"]),
        (["--allow-metrics", "--id", "x"], ["--allow-metrics=true", "--id", "x"]),
        (["--allow-metrics", "m.onnx"], ["--allow-metrics=true", "m.onnx"]),
        (["--allow-metrics=0"], ["--allow-metrics=0"]),
        (["--", "--allow-metrics", "true"], ["--", "--allow-metrics", "true"]),
        (["m.onnx", "true"], ["m.onnx", "true"]),
        ([], []),
    ],
)
def test_spelling_out(args: list[str], spelled: list[str]) -> None:
    """Only known switches are touched, only words are taken as values, nothing behind `--`."""
    assert spell_out(args) == spelled


@given(
    st.lists(
        st.sampled_from(["--allow-metrics", "--log-info", "true", "0", "m", "--id", "--", "--x=1"])
    )
)
def test_spelling_out_twice_changes_nothing(args: list[str]) -> None:
    """What is spelled out already stays."""
    once = spell_out(args)
    assert spell_out(once) == once


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--grpc-port", "70000"], "--grpc-port: got '70000', expected an integer from 0 to 65535"),
        (["--grpc-prot", "1"], "--grpc-port"),
        (["--allow-metrics=maybe"], "--allow-metrics: got 'maybe', expected true or false"),
        (["no-such.onnx"], "MODEL_FILE: got 'no-such.onnx', expected a file that exists"),
        (["--config", "no-such.toml"], "no-such.toml: cannot be read"),
        ([], "nothing to serve: name model files, or a folder of models"),
        (["--transport=native", "--grpc-use-ssl"], "--grpc-server-cert: missing"),
    ],
)
def test_usage_errors(args: list[str], expected: str) -> None:
    """Exit code 2, the command's usage, and a text that names what is wrong."""
    result = invoke("serve", *args)
    assert result.exit_code == 2
    assert "Usage: main serve" in result.output
    assert expected in result.output


def test_environment_and_file_reach_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command itself reads HEADRACE_ variables and the file that HEADRACE_CONFIG names."""
    monkeypatch.setenv("HEADRACE_GRPC_PORT", "zero")
    assert "HEADRACE_GRPC_PORT: got 'zero'" in invoke("serve").output
    monkeypatch.delenv("HEADRACE_GRPC_PORT")
    file = tmp_path / "headrace.toml"
    file.write_text("grpc_port = -1\n")
    monkeypatch.setenv("HEADRACE_CONFIG", str(file))
    result = invoke("serve")
    assert result.exit_code == 2
    assert f"{file}: grpc_port: got -1" in result.output
