"""Searches for bytes that break a reader: `python -m fuzz.run [--seconds N] [BODY…]` (`make fuzz`).

Each body has a process of its own, one after the other, because libFuzzer ends its process. What it
has learnt stays in build/fuzz/BODY/corpus, where the next run goes on; what broke a body lies in
build/fuzz/BODY/found, one file each.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

_FOLDER = Path(__file__).resolve().parents[2] / "build" / "fuzz"
_MEMORY = Path("/dev/shm")
_INPUT_S = 10  # one that takes longer is a finding
_MEMORY_MB = 2048  # and so is one that takes more
_MAX_BYTES = 4096
_DONE = re.compile(r"^Done (\d+) (?:runs )?in (\d+) second", re.MULTILINE)


def main() -> int:
    """Run the bodies that are named, or all; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="fuzz.run", description=__doc__)
    parser.add_argument("bodies", nargs="*", metavar="BODY")
    parser.add_argument("--seconds", type=int, default=600, help="for each body (default 600)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        _search(arguments.bodies[0], arguments.seconds)
    # Here, so that the process that searches imports what is searched under the fuzzer's eyes.
    from fuzz.seeds import BODIES

    wrong = [name for name in arguments.bodies if name not in BODIES]
    if wrong:
        parser.error(f"no body {wrong[0]!r}; there are {', '.join(BODIES)}")
    results = [_run(name, arguments.seconds) for name in arguments.bodies or BODIES]
    return 0 if all(results) else 1


def _run(name: str, seconds: int) -> bool:
    """Search in a process of its own; tell in one line what came of it."""
    command = [sys.executable, "-m", "fuzz.run", "--inside", "--seconds", str(seconds), name]
    log = _FOLDER / name / "log"
    log.parent.mkdir(parents=True, exist_ok=True)
    place = _MEMORY if _MEMORY.is_dir() else None  # what is written for each input stays there
    with log.open("w") as file, tempfile.TemporaryDirectory(dir=place) as folder:
        env = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(command, stdout=file, stderr=file, env=env, check=False)
    text = log.read_text(errors="replace")
    told = _DONE.search(text)
    ran = f"{int(told[1]):,} inputs in {told[2]} s" if told else "ended early"
    is_clean = done.returncode == 0 and told is not None
    print(
        f"{name:8} {ran:28} {'nothing found' if is_clean else f'FOUND something: {log}'}",
        flush=True,
    )
    return is_clean


def _search(name: str, seconds: int) -> None:
    with atheris.instrument_imports(include=["headrace", "headrace_client", "headrace_proto"]):
        from fuzz.seeds import BODIES, seeds
    corpus, found = (_FOLDER / name / each for each in ("corpus", "found"))
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds(name)):
        (corpus / f"seed-{number}").write_bytes(data)
    options = {
        "max_total_time": seconds,
        "timeout": _INPUT_S,
        "rss_limit_mb": _MEMORY_MB,
        "max_len": _MAX_BYTES,
        "artifact_prefix": f"{found}/",
        "print_final_stats": 1,
    }
    flags = [f"-{key}={value}" for key, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], BODIES[name])
    atheris.Fuzz()  # does not return


if __name__ == "__main__":
    sys.exit(main())
