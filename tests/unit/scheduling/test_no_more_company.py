"""Where nothing more is let in, a batch has no company to wait for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.engines.batching_spec import BatchingSpec
from helpers.rows_rig import MAX_ROWS, RowsRig

WAITS = BatchingSpec(max_rows=MAX_ROWS, preferred_rows=(4,), max_delay_s=60.0)


@pytest.mark.parametrize(
    "end",
    [lambda rig: rig.scheduler.refuse_new(), lambda rig: rig.line.retire()],
    ids=["the server drains", "the version is unloaded"],
)
def test_what_waits_for_company_runs_at_once(end: Callable[[RowsRig], None]) -> None:
    """A delay may be longer than what a server gets to finish its work."""
    rig = RowsRig(WAITS)
    asked = [rig.ask(b"a"), rig.ask(b"bc")]
    rig.step()
    assert rig.line.length == 2
    end(rig)
    rig.run()
    assert all(each.is_right for each in asked)
    assert rig.clock() < 1.0
    rig.close()
