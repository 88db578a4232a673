"""The options of ``headrace-client bench``: those of perf_analyzer, ghz and k6 where they agree."""

from __future__ import annotations

import argparse
from pathlib import Path

from headrace_client.bench import notation
from headrace_client.bench.inputs import DATA_KINDS

EXAMPLES = """examples:
  headrace-client bench digits -c 1:32:4                        callers in a closed loop, a sweep
  headrace-client bench digits -r 2000 --arrivals poisson --deadline-ms 50 --html report.html
  headrace-client bench net --shape x:1x3x224x224 --sources 64 --rate-per-source 25
  headrace-client bench net --sources 8 --rate-per-source 50 --flood 0:20 --deadline-ms 100

exit code: 0; 1 when every request failed or no server was reached; 2 for wrong usage
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them all."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("model", nargs="?", default="", help="what to put load on")
    parser.add_argument("-m", "--model-name", default="", metavar="MODEL", help="the same")
    parser.add_argument(
        "-x", "--model-version", default="", metavar="N", help="default: the server chooses"
    )
    _add_load(parser.add_argument_group("load"))
    _add_sources(parser.add_argument_group("sources"))
    _add_requests(parser.add_argument_group("requests"))
    _add_client(parser.add_argument_group("the client itself, and its report"))


def _add_load(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        *("-c", "--concurrency", "--concurrency-range"),
        type=notation.range_of(int),
        metavar="N[:END[:STEP]]",
        help="closed loop: so many requests in flight (default 1); a range or a list is a sweep",
    )
    group.add_argument(
        *("-r", "--rate", "--rps", "--request-rate-range"),
        type=notation.range_of(float),
        metavar="R[:END[:STEP]]",
        help="open loop: requests a second, whatever the server does; latency counts from the "
        "time that each was due",
    )
    _add_arrivals(group)
    _add_length(group)


def _add_arrivals(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        *("--arrivals", "--request-distribution"),
        choices=("constant", "poisson"),
        default="constant",
        help="open loop: even intervals (default), or at random",
    )
    group.add_argument(
        "--bursts",
        type=notation.bursts,
        metavar="ON:OFF",
        help="open loop: send for ON seconds, pause for OFF; --rate is the mean of both",
    )
    group.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="open loop: send at the times of this file: seconds from the start, one a line, "
        "after them the source if there are several",
    )
    group.add_argument(
        "--request-intervals",
        type=Path,
        metavar="FILE",
        help="the same with pauses in microseconds, one a line, over and over, as perf_analyzer",
    )


def _add_length(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        *("--duration-s", "--duration"),
        type=notation.seconds,
        metavar="S",
        help="how long each level is measured (default 10, or as long as -n or --replay takes)",
    )
    group.add_argument(
        *("-n", "--requests", "--request-count"),
        type=notation.positive(int),
        metavar="N",
        help="end after so many requests",
    )
    group.add_argument(
        *("--warm-up-s", "--warm-up"),
        type=notation.seconds,
        default=1.0,
        metavar="S",
        help="load before the measurement (default 1)",
    )


def _add_sources(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--sources",
        type=notation.positive(int),
        default=1,
        metavar="K",
        help="senders, told apart by the request parameter stream_id, from 0 on; in an open loop "
        "each has arrivals of its own, with a phase at random",
    )
    group.add_argument(
        "--rate-per-source",
        type=notation.range_of(float),
        metavar="R[:END[:STEP]]",
        help="--rate for each source instead of all",
    )
    group.add_argument(
        "--flood",
        type=notation.flood,
        metavar="SOURCE:FACTOR",
        help="this source sends FACTOR times as much, on top of the rate",
    )


def _add_requests(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        *("-b", "--batch-size"),
        type=notation.positive(int),
        metavar="ROWS",
        help="rows a request (default 1); the rows of given arrays are repeated",
    )
    group.add_argument(
        *("-i", "--input"),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="JSON, as in x=[[1,2]], or a numpy file, as in x=@x.npy; the others are generated",
    )
    group.add_argument(
        *("--data", "--input-data"),
        type=lambda text: "zeros" if text == "zero" else text,
        choices=DATA_KINDS,
        default="random",
        help="what is generated (default random)",
    )
    group.add_argument(
        "--shape",
        type=notation.shapes,
        action="extend",
        default=[],
        metavar="NAME:DIMS",
        help="dimensions of an input, as in x:1x3x224x224 or x:3,224,224 (one row)",
    )
    _add_call(group)


def _add_call(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        *("-o", "--output"), action="append", metavar="NAME", help="only this output; repeatable"
    )
    group.add_argument(
        "--parameter",
        type=notation.parameter,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a request parameter: true, 7, 0.5, or text ('\"7\"' is text)",
    )
    group.add_argument(
        "--deadline-ms",
        type=notation.positive(float),
        metavar="MS",
        help="deadline of each request; answers within it are the goodput (default: --timeout)",
    )
    group.add_argument(
        "--message",
        type=Path,
        metavar="FILE",
        help="send this serialized ModelInferRequest, and do not ask the server for metadata",
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of all that is random")


def _add_client(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--processes",
        type=notation.positive(int),
        metavar="P",
        help="that send (default: by the load and the number of cores)",
    )
    group.add_argument(
        "--connections",
        type=notation.positive(int),
        metavar="N",
        help="over all processes (default: 4 for each, at most one for each caller)",
    )
    group.add_argument(
        "--max-in-flight",
        type=notation.positive(int),
        default=10_000,
        metavar="N",
        help="open loop: what is due beyond is dropped, and counted (default 10000)",
    )
    group.add_argument("--json", action="store_true", help="print JSON instead of text")
    group.add_argument("--json-file", type=Path, metavar="FILE", help="write JSON, too")
    group.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts, too")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")
