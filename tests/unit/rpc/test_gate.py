"""Who is let through: tokens and restricted headers, and that no other spelling gets by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.config.restriction import GROUPS, Restriction
from headrace.rpc.gate import HEALTH_CHECKS, RPCS, Gate, paths_of
from headrace.rpc.tokens import TokenFile
from headrace_proto.service import METHODS

TOKEN, SECRET = "token-0123456789", "s3cret value"
INFER, CONFIG = METHODS["ModelInfer"].path, METHODS["ModelConfig"].path
RESTRICTION = Restriction(("inference", "statistics"), "infer-key", SECRET)
HEADER = "triton-grpc-protocol-infer-key"


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    path = tmp_path / "tokens"
    path.write_text(f"me:{TOKEN}\n")
    return TokenFile(path, clock=lambda: 0.0)


def code(gate: Gate, path: str, *metadata: tuple[str, str | bytes]) -> str | None:
    status = gate.check(path, metadata)
    return None if status is None else status.code.name


def test_every_rpc_is_in_one_group() -> None:
    """The groups are Triton's, and a new RPC cannot be forgotten."""
    assert tuple(RPCS) == GROUPS
    assert sorted(name for names in RPCS.values() for name in names) == sorted(METHODS)
    assert HEALTH_CHECKS == ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch")


@pytest.mark.parametrize("group", GROUPS)
def test_a_restricted_group_asks_for_its_header(group: str) -> None:
    """For all of its RPCs, and for no other."""
    gate = Gate([Restriction((group,), "k", "v")])
    inside = set(paths_of(group))
    for path in (*(method.path for method in METHODS.values()), *HEALTH_CHECKS):
        assert code(gate, path) == ("UNAVAILABLE" if path in inside else None)
        assert code(gate, path, ("triton-grpc-protocol-k", "v")) is None
    assert gate.num_refused["restricted"] == len(inside)


def test_the_text_is_triton_s_and_tells_no_value() -> None:
    """Its clients look for it; retrying would not help."""
    status = Gate([RESTRICTION]).check(INFER, [(HEADER, "guess")])
    assert status is not None
    assert status.text == f"This protocol is restricted, expecting header '{HEADER}'"
    assert status.no_retry


@pytest.mark.parametrize(
    "metadata",
    [
        [(HEADER, SECRET[:-1])],
        [(HEADER, SECRET + " ")],
        [(HEADER, SECRET.upper())],
        [(HEADER, "")],
        [("infer-key", SECRET)],
        [(HEADER + "-bin", SECRET.encode())],
        [(HEADER.replace("-", "_"), SECRET)],
        [(HEADER, "wrong"), (HEADER, SECRET)],
        [(HEADER, SECRET), (HEADER, "wrong")],
        [(HEADER, SECRET), (HEADER, SECRET)],
        [(HEADER, SECRET), (HEADER.title(), "wrong")],
        [(HEADER, f"wrong,{SECRET}")],
        [(HEADER, "\u0130")],
        [(HEADER, "\ud800")],
    ],
)
def test_no_other_spelling_passes(metadata: list[tuple[str, str | bytes]]) -> None:
    """One header, with the one value."""
    assert code(Gate([RESTRICTION]), INFER, *metadata) == "UNAVAILABLE"


def test_the_case_of_a_header_does_not_matter() -> None:
    """HTTP/2 has lower case only; what hands on others means the same header."""
    assert code(Gate([RESTRICTION]), INFER, (HEADER.upper(), SECRET)) is None


def test_tokens_are_asked_for_everywhere_but_in_health_checks(tokens: TokenFile) -> None:
    """Also where there is no such RPC: nobody learns what there is."""
    gate = Gate(tokens=tokens)
    everything = {method.path for method in METHODS.values()} | {*HEALTH_CHECKS, "/no/such"}
    open_paths = {path for path in everything if code(gate, path) is None}
    assert open_paths == set(paths_of("health"))
    assert all(
        code(gate, path, ("authorization", f"Bearer {TOKEN}")) is None for path in everything
    )


def test_health_checks_can_be_closed(tokens: TokenFile) -> None:
    """Then they ask for a token like all."""
    gate = Gate(tokens=tokens, asks_health_checks=True)
    assert {code(gate, path) for path in paths_of("health")} == {"UNAUTHENTICATED"}


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_taken_in_any_case(scheme: str, tokens: TokenFile) -> None:
    """As HTTP says."""
    assert code(Gate(tokens=tokens), INFER, ("authorization", f"{scheme} {TOKEN}")) is None


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ([], "no_token"),
        ([("authorization", TOKEN)], "no_token"),
        ([("authorization", f"Basic {TOKEN}")], "no_token"),
        ([("authorization", f"Bearer{TOKEN}")], "no_token"),
        ([("authorization", f"Bearer {TOKEN}")] * 2, "no_token"),
        ([("authorization", "Bearer x"), ("authorization", f"Bearer {TOKEN}")], "no_token"),
        ([("authorization-bin", f"Bearer {TOKEN}".encode())], "no_token"),
        ([("authorization", "Bearer ")], "unknown_token"),
        ([("authorization", f"Bearer {TOKEN[:-1]}")], "unknown_token"),
        ([("authorization", f"Bearer me:{TOKEN}")], "unknown_token"),
        ([("authorization", f"Bearer {TOKEN} {TOKEN}")], "unknown_token"),
    ],
)
def test_no_other_token_passes(metadata: Any, reason: str, tokens: TokenFile) -> None:
    """UNAUTHENTICATED, with a text that says what to send and repeats nothing that came."""
    gate = Gate(tokens=tokens)
    status = gate.check(INFER, metadata)
    assert status is not None
    assert status.code is grpc.StatusCode.UNAUTHENTICATED
    assert TOKEN not in status.text
    assert gate.num_refused == {"no_token": 0, "unknown_token": 0, "restricted": 0} | {reason: 1}


def test_both_are_asked_for_where_both_are_on(tokens: TokenFile) -> None:
    """A token is no key to what is restricted, nor the other way round."""
    gate = Gate([RESTRICTION], tokens)
    token, secret = ("authorization", f"Bearer {TOKEN}"), (HEADER, SECRET)
    assert code(gate, INFER, token) == "UNAVAILABLE"
    assert code(gate, INFER, secret) == "UNAUTHENTICATED"
    assert code(gate, INFER, token, secret) is None
    assert code(gate, CONFIG, token) is None
