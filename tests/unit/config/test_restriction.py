"""`--grpc-restricted-protocol` as Triton writes it, and that its secret is in no text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import OPTIONS, ServerConfig, load
from headrace.config.restriction import GROUPS, Restricted, Restriction
from headrace.errors import ConfigError

KIND = Restricted()
VALUE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1)


def fault(**flags: object) -> str:
    with pytest.raises(ConfigError) as error:
        load(flags, {})
    return str(error.value)


def test_triton_s_own_example() -> None:
    """Several protocols share a key, and the header has its prefix."""
    restriction = KIND.read("shared-memory,model-config,trace:admin-key=admin-value")
    assert restriction.groups == ("shared-memory", "model-config", "trace")
    assert restriction.header == "triton-grpc-protocol-admin-key"
    assert restriction.value == "admin-value"


@given(st.sets(st.sampled_from(GROUPS), min_size=1), VALUE)
def test_whatever_the_secret_is(groups: set[str], value: str) -> None:
    """It may hold what separates the rest."""
    restriction = KIND.read(f"{','.join(groups)}:k={value}")
    assert set(restriction.groups) == groups
    assert (restriction.key, restriction.value) == ("k", value)


def test_keys_are_in_lower_case_as_headers_travel() -> None:
    """Triton's would never be found."""
    assert KIND.read("health:Key=Value").header == "triton-grpc-protocol-key"


WRONG = [
    "",
    "health",
    "health:key",
    "health:=s3cret",
    "health:key=",
    ":key=s3cret",
    "inference,:key=s3cret",
    "infer:key=s3cret",
    "HEALTH:key=s3cret",
    "health:a key=s3cret",
    "health:key-bin=s3cret",
    "health:k\u00e9y=s3cret",
    "health:key=s3cret\u00e9",
    "health:key=s3cret\n",
    "health:key= s3cret",
]


@pytest.mark.parametrize("text", WRONG)
def test_wrong_ones_are_refused_without_being_shown(text: str) -> None:
    """What was expected is told; what came is not, for it may hold the secret."""
    told = fault(grpc_restricted_protocol=[text])
    assert told.startswith("--grpc-restricted-protocol: got a value that is not shown")
    assert "PROTOCOLS:KEY=VALUE" in told
    assert "s3cret" not in told


def test_several() -> None:
    """Flags one by one, a variable with ';', each protocol once."""
    pair = ["health:a=1", "metadata,inference:b=2,3"]
    expected = (
        Restriction(("health",), "a", "1"),
        Restriction(("metadata", "inference"), "b", "2,3"),
    )
    assert load({"grpc_restricted_protocol": pair}, {}).grpc_restricted_protocol == expected
    variable = {"HEADRACE_GRPC_RESTRICTED_PROTOCOL": ";".join(pair)}
    assert load({}, variable).grpc_restricted_protocol == expected
    told = fault(grpc_restricted_protocol=["health,trace:a=1", "trace:b=2"])
    assert told.startswith("--grpc-restricted-protocol: got 'trace' more than once")
    assert "a=1" not in told


def test_the_secret_is_in_no_text_of_the_configuration() -> None:
    """A log of the configuration, or an error about it, must not give it away."""
    config = load({"grpc_restricted_protocol": "health:key=s3cret"}, {})
    assert "s3cret" not in repr(config)
    option = next(option for option in OPTIONS if option.name == "grpc_restricted_protocol")
    assert option.kind.show(config.grpc_restricted_protocol) == "health:key=…"
    assert option.default_text == ""
    assert ServerConfig().grpc_restricted_protocol == ()
