"""A plan that keeps state, on the virtual GPU: states cross the bus with their requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.fake_plans import tensor
from helpers.parts import submit_part
from helpers.sim_served import SimServed

# The fake doubles every input: the state after n requests is 2 to the n times what it began with.
PLAN = {
    "op": "double",
    "tensors": [
        tensor("had", "INPUT", [-1, 2]),
        tensor("x", "INPUT", [-1, 4]),
        tensor("has", "OUTPUT", [-1, 2]),
        tensor("y", "OUTPUT", [-1, 4]),
    ],
    "profiles": [{"x": [[1, 4], [4, 4], [8, 4]], "had": [[1, 2], [4, 2], [8, 2]]}],
    "memory": [1000],
    "weights": 1,
}
CONFIG = """max_batch_size: 8 output { name: "has" data_type: TYPE_FP32 dims: [ 2 ] }
sequence_batching { STRATEGY state { input_name: "had" output_name: "has" data_type: TYPE_FP32
dims: [ 2 ] initial_state { name: "ones" data_type: TYPE_FP32 dims: [ 2 ] data_file: "ones" } } }"""


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_queue_delay_microseconds: 50 }"])
def test_states_go_over_the_bus_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    """Sequences in batches, gathered and alone; each has its own state, whatever the block."""
    (tmp_path / "m/initial_state").mkdir(parents=True)
    (tmp_path / "m/initial_state/ones").write_bytes(np.ones(2, np.float32).tobytes())
    rig = SimServed(tmp_path, monkeypatch)
    try:
        rig.load(PLAN, CONFIG.replace("STRATEGY", strategy))
        assert [spec.name for spec in rig.model.spec.inputs] == ["x"]
        x = np.zeros((1, 4), np.float32)
        asked = {
            (each, place): submit_part(rig, x, each, is_start=place == 0, is_end=place == 4)
            for place in range(5)
            for each in range(1, 7 - place)  # fewer and fewer go on
        }
        rig.run()
        sequences = rig.model.line.sequences
        assert sequences is not None
        assert sequences.num_sequences == 4
        for (_, place), each in asked.items():
            assert np.array_equal(each.answer, np.full((1, 2), 2.0 ** (place + 1), np.float32))
    finally:
        rig.close()
