"""Flags win over the environment, that over the file, and every name leads to the same setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import OPTIONS, Option, ServerConfig, load, unknown_variables
from headrace.config.kinds import Boolean, Choice, File, Many, Number, Text
from headrace.config.local_cache import LocalCache, LocalCacheKind
from headrace.config.restriction import Restricted, Restriction
from headrace.errors import ConfigError

FLAGS = [option for option in OPTIONS if not option.declaration.is_argument]


def write(folder: Path, text: str) -> Path:
    path = folder / "headrace.toml"
    path.write_text(text)
    return path


def fault(flags: dict[str, Any], environment: dict[str, str], file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        load(flags, environment, config_file=file)
    return str(error.value)


def test_precedence(tmp_path: Path) -> None:
    """A flag wins over the environment, that over the file, that over the default."""
    file = write(tmp_path, "grpc_port = 1\nmetrics_port = 2\nnap_us = 3\n")
    environment = {"HEADRACE_GRPC_PORT": "11", "HEADRACE_METRICS_PORT": "12"}
    config = load({"grpc_port": "21"}, environment, config_file=file)
    assert (config.grpc_port, config.metrics_port, config.nap_us) == (21, 12, 3)
    assert config.max_queue_size == ServerConfig().max_queue_size


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    """HEADRACE_CONFIG is used when no file is given, and only then."""
    named = write(tmp_path, "nap_us = 7\n")
    other = tmp_path / "other.toml"
    other.write_text("nap_us = 8\n")
    environment = {"HEADRACE_CONFIG": str(named)}
    assert load({}, environment).nap_us == 7
    assert load({}, environment, config_file=other).nap_us == 8


def example(option: Option, folder: Path) -> Any:
    """Return a valid value of an option that is not its default."""
    kind = option.kind.item if isinstance(option.kind, Many) else option.kind
    value: Any
    match kind:
        case Boolean():
            value = not option.default
        case Number():
            value = int(kind.low or 0) + 1
            value += value == option.default
        case Choice():
            value = next(word for word in kind.words if word != option.default)
        case File():
            value = folder / "file"
            value.touch()
            value = folder if option.name == "model_repository" else value
        case LocalCacheKind():
            value = LocalCache(4096)
        case Restricted():
            value = Restriction(("trace", "logging"), "key", "a=b:c,d")
        case _:
            value = "example"
    return (value,) if isinstance(option.kind, Many) else value


RULED = {  # whose value from `example` is refused alone, by a rule between settings
    "grpc_use_ssl",
    "grpc_use_ssl_mutual",
    "grpc_server_cert",
    "grpc_server_key",
    "grpc_root_cert",
    "max_bytes_in_flight",
    "load_model",
    "allow_model_uploads",
    "client_shm_key_prefix",
    "client_shm_uid",
}


@pytest.mark.parametrize("option", FLAGS, ids=lambda option: option.name)
def test_every_setting_can_be_given_in_every_way(option: Option, tmp_path: Path) -> None:
    """Text of a flag, text of the environment and TOML read alike, under each of its names."""
    value = example(option, tmp_path)
    text = option.kind.show(value)
    if isinstance(option.kind, Many) and option.kind.is_secret:
        text = "trace,logging:key=a=b:c,d"
    is_bare = isinstance(option.kind, Boolean | Number)
    toml = text if is_bare else f'"{text}"'

    def outcome(flags: dict[str, Any], environment: dict[str, str], file: Path | None) -> Any:
        try:
            return getattr(load(flags, environment, config_file=file), option.name)
        except ConfigError as error:
            return error.reason

    outcomes = [outcome({option.name: text}, {}, None)]
    outcomes += [outcome({}, {name: text}, None) for name in option.variables]
    for key in option.keys:
        outcomes.append(outcome({}, {}, write(tmp_path, f"{key} = {toml}\n")))
        outcomes.append(outcome({}, {}, write(tmp_path, f"{key.replace('_', '-')} = {toml}\n")))
    assert all(other == outcomes[0] for other in outcomes)
    assert value != option.default
    assert (outcomes[0] == value) is (option.name not in RULED)


def test_names_are_unique() -> None:
    """No two settings share a flag, a variable or a key."""
    for names in (
        [flag for option in FLAGS for flag in option.flags],
        [name for option in FLAGS for name in option.variables],
        [key for option in OPTIONS for key in option.keys],
    ):
        assert len(names) == len(set(names))
    assert "HEADRACE_CONFIG" not in [name for option in FLAGS for name in option.variables]


def test_lists(tmp_path: Path) -> None:
    """Several values: repeated flags, separators in one text, a list in TOML."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    both = (one, two)
    assert load({"model_repository": (str(one), str(two))}, {}).model_repository == both
    environment = {"HEADRACE_MODEL_REPOSITORY": f"{one}:{two}"}
    assert load({}, environment).model_repository == both
    file = write(tmp_path, 'model_repository = ["one", "two"]\ngpus = [0, 2]\n')
    assert load({}, {}, config_file=file).model_repository == both
    assert load({}, {}, config_file=file).gpus == (0, 2)
    assert load({}, {"HEADRACE_GPUS": "0,2"}).gpus == (0, 2)
    assert load({"gpus": ("0,2", "3")}, {}).gpus == (0, 2, 3)


def test_paths_in_a_file_start_at_its_folder(tmp_path: Path) -> None:
    """A file can be moved together with what it names."""
    (tmp_path / "models").mkdir()
    (tmp_path / "m.onnx").touch()
    file = write(tmp_path, 'model_repository = "models"\nmodel_files = ["m.onnx"]\n')
    config = load({}, {}, config_file=file)
    assert config.model_repository == (tmp_path / "models",)
    assert config.model_files == (tmp_path / "m.onnx",)


def test_a_wrong_variable_is_named_as_the_variable() -> None:
    """The text names what the operator wrote, not what it would have been as a flag."""
    text = fault({}, {"HEADRACE_GRPC_PORT": "many"})
    assert text.startswith("HEADRACE_GRPC_PORT: got 'many', expected an integer from 0 to 65535; ")


def test_variables_that_kubernetes_sets_are_explained() -> None:
    """A Service named headrace-grpc sets HEADRACE_GRPC_PORT to an address: the text says so."""
    text = fault({}, {"HEADRACE_GRPC_PORT": "tcp://10.0.0.1:8001"})
    assert "enableServiceLinks: false" in text


def test_misspelt_variables_are_named() -> None:
    """A variable that is no setting is told, with what was meant; Kubernetes' own are not."""
    environment = {
        "HEADRACE_GRPC_PROT": "1",
        "HEADRACE_ZZZ": "1",
        "HEADRACE_GRPC_PORT": "1",
        "HEADRACE_SERVER_ID": "x",
        "HEADRACE_CONFIG": "x",
        "HEADRACE_PORT": "tcp://10.0.0.1:8001",
        "HEADRACE_PORT_8001_TCP_ADDR": "10.0.0.1",
        "HEADRACE_SERVICE_HOST": "10.0.0.1",
        "HEADRACE_WEB_SERVICE_PORT_GRPC": "8001",
        "PATH": "/bin",
    }
    assert list(unknown_variables(environment)) == [
        "HEADRACE_GRPC_PROT is no setting and is ignored; did you mean HEADRACE_GRPC_PORT?",
        "HEADRACE_ZZZ is no setting and is ignored",
    ]


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("grpc_prot = 1\n", "grpc_prot: is no setting; did you mean grpc_port?"),
        ("zzz = 1\n", "zzz: is no setting; `headrace serve --help` lists them"),
        ("[grpc]\nport = 1\n", "grpc: is no setting"),
        ("grpc_port = 70000\n", "grpc_port: got 70000, expected an integer from 0 to 65535"),
        ('grpc_port = "x"\n', "grpc_port: got 'x', expected an integer"),
        ("grpc_port = 80.5\n", "grpc_port: got 80.5, expected an integer"),
        ("grpc_port = [1]\n", "grpc_port: got [1], expected an integer"),
        ("server_id = 5\n", "server_id: got 5, expected text"),
        ("gpus = [[0]]\n", "gpus: got [[0]], expected an integer"),
        ("grpc_port = \n", "is not TOML"),
    ],
)
def test_a_wrong_file_names_file_and_key(tmp_path: Path, toml: str, expected: str) -> None:
    """The text begins with the file, then the key as written there, then what is wrong."""
    file = write(tmp_path, toml)
    assert fault({}, {}, file).startswith(f"{file}: {expected}")


def test_a_missing_or_binary_file_is_named(tmp_path: Path) -> None:
    """A file that is not there, and one that is no text, are faults of the file."""
    missing = tmp_path / "missing.toml"
    assert fault({}, {}, missing).startswith(f"{missing}: cannot be read")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert fault({}, {}, binary).startswith(f"{binary}: is not TOML")


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever stands in the environment gives a value or a printable ConfigError, nothing else."""
    faults = []
    for option in FLAGS:
        try:
            option.read(text)
        except ConfigError as error:
            faults.append(str(error))
    assert all(fault.isprintable() for fault in faults)


@given(st.booleans(), st.integers(0, 2**31 - 1), st.floats(0, 86_400))
def test_what_is_shown_reads_back(flag: bool, number: int, seconds: float) -> None:
    """Text made of a value is read as that value."""
    assert Boolean().read(Boolean().show(flag)) is flag
    assert Number(0).read(Number(0).show(number)) == number
    assert Many(Number(0)).read(Many(Number(0)).show((number, 1))) == (number, 1)
    decimal = Number(0, is_integer=False)
    assert decimal.read(decimal.show(seconds)) == pytest.approx(seconds, rel=1e-5, abs=1e-5)
    assert Text().read(Text().show("a b")) == "a b"
