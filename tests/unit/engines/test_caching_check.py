"""Of which models replies are kept, and what a configuration says that asks for more."""

from __future__ import annotations

import pytest

from headrace.engines.caching_check import check_caching
from headrace.engines.model_config import check
from helpers.model_repository import config_of

ASKS = "response_cache { enable: true } "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sequence_batching { }", "together with sequence_batching: the answer depends on what"),
        (
            "model_transaction_policy { decoupled: true }",
            "together with model_transaction_policy.decoupled: it has many replies",
        ),
    ],
)
def test_models_of_which_no_reply_can_be_kept(text: str, reason: str) -> None:
    """The fault names the field that is wrong, and is among those that a load tells."""
    ((field, told),) = check_caching(config_of(ASKS + text))
    assert (field, reason in told) == ("response_cache.enable", True)
    named = {(str(fault.field), fault.reason) for fault in check(config_of(ASKS + text), None)}
    assert (field, told) in named
    assert list(check_caching(config_of("response_cache { enable: false } " + text))) == []


@pytest.mark.parametrize("text", ["", "dynamic_batching { }", "max_batch_size: 8"])
def test_all_others_may(text: str) -> None:
    """Batches or none."""
    assert list(check_caching(config_of(ASKS + text))) == []
