"""ONNX Runtime with no server at all: `-m load.inprocess REPOSITORY MODEL THREADS SECONDS`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from threading import Thread

import numpy as np

from load.models import model_path, session
from load.work import Figures, sample


def run(repository: Path, model: str, num_threads: int, seconds: float) -> Figures:
    """Runs one row again and again, in so many threads with a session each."""
    latencies_s: list[float] = []
    x = sample(model)
    until = time.perf_counter() + seconds

    def loop() -> None:
        alone = session(model_path(repository, model))
        while (started := time.perf_counter()) < until:
            alone.run(None, {"x": x})
            latencies_s.append(time.perf_counter() - started)

    threads = [Thread(target=loop) for _ in range(num_threads)]
    cpu_s, started = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu_s, took_s = time.process_time() - cpu_s, time.perf_counter() - started
    p50, p99 = np.percentile(latencies_s, [50, 99])
    count = len(latencies_s)
    return Figures(count / took_s, float(p50) * 1e3, float(p99) * 1e3, cpu_s / count * 1e3)


if __name__ == "__main__":
    folder, name, threads, duration = sys.argv[1:]
    print(json.dumps(asdict(run(Path(folder), name, int(threads), float(duration)))))
