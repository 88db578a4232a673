"""What requests wait for while /metrics is read: `python -m load.scrapes [--every-s 0.5]`.

A server of 24 models, and a client in a process of its own that asks one of them at random moments
(Poisson), each request timed from the moment it was due: first alone, then beside somebody who
reads the page again and again. Prints percentiles in milliseconds, and what a page takes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import fmean
from threading import Event, Thread

from helpers.server import NO_DEBUG, TRANSPORTS, Server, serving
from load.bench_client import bench
from load.models import write_repository

LOAD = ("mlp", "--rate", "300", "--arrivals", "poisson", "--duration-s", "12")
SHOWN = ("p50_ms", "p90_ms", "p99_ms", "p999_ms")


def read(server: Server, every_s: float, has_ended: Event, took_s: list[float]) -> None:
    """Read the page until it is told that it has ended."""
    while not has_ended.wait(every_s):
        began_at = time.monotonic()
        with urllib.request.urlopen(f"http://{server.metrics_address}/metrics") as page:
            page.read()
        took_s.append(time.monotonic() - began_at)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every-s", type=float, default=0.5, help="pause between two readings")
    every_s = parser.parse_args().every_s
    print(f"{'transport':>9} {'scrapes':>7} {'ms each':>7} " + " ".join(f"{p:>7}" for p in SHOWN))
    with tempfile.TemporaryDirectory() as folder:
        repository = write_repository(Path(folder))
        for transport in TRANSPORTS:
            with serving(
                *("--model-repository", repository, "--transport", transport), env=NO_DEBUG
            ) as server:
                for is_read in (False, True, False, True):
                    has_ended, took_s = Event(), [0.0]
                    reader = Thread(target=read, args=(server, every_s, has_ended, took_s))
                    if is_read:
                        reader.start()
                    latency = bench(server, *LOAD)["latency"]
                    has_ended.set()
                    if is_read:
                        reader.join()
                    figures = " ".join(f"{latency[p]:>7.1f}" for p in SHOWN)
                    page_ms = fmean(took_s[1:] or took_s) * 1e3
                    print(f"{transport:>9} {len(took_s) - 1:>7} {page_ms:>7.0f} {figures}")


if __name__ == "__main__":
    main()
