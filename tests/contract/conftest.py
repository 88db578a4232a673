"""The contract lives in tests/helpers; its assertions are to be explained like any other's."""

import pytest

pytest.register_assert_rewrite(
    "helpers.device_contract", "helpers.device_rig", "helpers.graph_contract"
)
