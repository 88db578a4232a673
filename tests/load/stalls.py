"""What loading a model holds up in its process: `python -m load.stalls [MODEL] [--device cudart]`.

The model is loaded, loaded again beside itself, and the older one closed, over and over, as swaps
of versions do. Meanwhile one thread wakes up each half millisecond: what it comes late, another one
kept the interpreter. On a GPU one more records events on a stream of its own: what that takes
longer, the driver kept it. Prints the spells above `--least-ms` by where the loading thread was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from types import FrameType

from headrace.device import open_device
from headrace.device.base import Device
from headrace.engines.repository import find_models
from headrace.loader import Loader, LoadOptions
from headrace.metrics import Metrics
from headrace.slots.blocks import BlockPool
from load.models import CATALOGUE, write_repository

NAP_S = 0.0005
BUDGET_BYTES = 256 << 20


class Watch:
    """A thread that does something short again and again, and notes when it was long."""

    def __init__(self, act: Callable[[], None], usual_s: float, least_s: float) -> None:
        self.spells_s: dict[str, list[float]] = defaultdict(list)
        self._act, self._usual_s, self._least_s = act, usual_s, least_s

    def run_beside(self, watched: Thread) -> None:
        """Note where another thread is, until that has ended."""
        assert watched.ident is not None
        while watched.is_alive():
            began_at = time.perf_counter()
            self._act()
            late_s = time.perf_counter() - began_at - self._usual_s
            if late_s >= self._least_s:
                place = " < ".join(places(sys._current_frames().get(watched.ident)))
                self.spells_s[place].append(late_s)


def places(frame: FrameType | None) -> Iterator[str]:
    """The innermost three places, innermost first."""
    for _ in range(3):
        if frame is None:
            return
        code = frame.f_code
        yield f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"
        frame = frame.f_back


def watches(device: Device, least_s: float, stack: ExitStack) -> dict[str, Watch]:
    """One of the interpreter, and one of a GPU's driver."""
    found = {"the interpreter": Watch(lambda: time.sleep(NAP_S), NAP_S, least_s)}
    if device.kind == "cudart":
        stream, event = device.open_stream(), device.open_event()
        stack.callback(stream.close)
        stack.callback(event.close)
        found["the driver"] = Watch(lambda: stream.record(event), 0.0, least_s)
    return found


def main(argv: Sequence[str]) -> int:
    """Load, and print what was held up."""
    parser = argparse.ArgumentParser(prog="load.stalls", description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="resnet50_fp16_u8", choices=CATALOGUE)
    parser.add_argument("--device", default="host", choices=["host", "cudart"])
    parser.add_argument("--swaps", type=int, default=5)
    parser.add_argument("--least-ms", type=float, default=5.0)
    chosen = parser.parse_args(argv)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = find_models([write_repository(folder, [chosen.model])])
        device = open_device(chosen.device)
        stack.callback(device.close)
        blocks = BlockPool(device, BUDGET_BYTES)
        stack.callback(blocks.close)
        loader = Loader(device, blocks, Metrics(), LoadOptions(), clock=time.monotonic)
        running = loader.load(found.models[0], 1)
        watching = watches(device, chosen.least_ms / 1e3, stack)
        loads_s: list[float] = []

        def swap() -> None:
            nonlocal running
            for _ in range(chosen.swaps):
                began_at = time.perf_counter()
                newer = loader.load(found.models[0], 1)
                loads_s.append(time.perf_counter() - began_at)
                running.close()
                running = newer

        loading = Thread(target=swap)
        loading.start()
        beside = [Thread(target=each.run_beside, args=(loading,)) for each in watching.values()]
        for thread in beside:
            thread.start()
        for thread in (loading, *beside):
            thread.join()
        running.close()
    if len(loads_s) < chosen.swaps:
        return 1  # what was wrong is told by the thread that loaded
    print(f"{chosen.model} on {chosen.device}: {chosen.swaps} loads, {max(loads_s):.2f} s at most")
    for what, watch in watching.items():
        print(f"held up by {what}:")
        for place, spells_s in sorted(watch.spells_s.items(), key=lambda item: -max(item[1])):
            times_ms = ", ".join(f"{spell_s * 1e3:.0f}" for spell_s in sorted(spells_s)[-6:])
            print(f"  {len(spells_s):4} x {place}: {times_ms} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
