"""headrace beside the real tritonserver: every case as recorded, or on the list of differences."""

from __future__ import annotations

import pytest

from helpers.comparison import PAGE, SETUPS, ask_headrace, recorded, unexpected
from helpers.differences import DIFFERENCES
from helpers.environments import TRITONCLIENT

NEWEST, BEFORE = TRITONCLIENT

pytestmark = pytest.mark.timeout(300)  # the first run installs the environments


@pytest.mark.parametrize("setup", SETUPS)
def test_as_triton_or_as_listed(setup: str) -> None:
    """No case differs without a reason, and none that has a reason is the same."""
    assert unexpected(setup, ask_headrace(setup, NEWEST), recorded()[setup]) == {}


@pytest.mark.native
def test_by_another_client_and_transport() -> None:
    """The client of the protobuf 5 days changes nothing, nor the native transport but deflate."""
    ours = ask_headrace("explicit", BEFORE, "--transport", "native")
    found = unexpected("explicit", ours, recorded()["explicit"])
    assert found.pop("infer packed with deflate")[0] == {"code": "UNIMPLEMENTED"}
    assert found == {}


def test_the_list_names_cases_that_there_are() -> None:
    """A case that is renamed takes its reason with it."""
    record = recorded()
    assert set(record) == set(SETUPS)
    assert [(name, case) for name, case in DIFFERENCES if case not in record[name]] == []


def test_the_page_has_every_difference_and_its_reason() -> None:
    """`make compare` was run after the list was last changed."""
    page = PAGE.read_text()
    rows = {f"| {name}: {case} |": why for (name, case), why in DIFFERENCES.items()}
    assert [row for row, why in rows.items() if row not in page or why not in page] == []
