"""What headrace answers beside what Triton answers, case by case, and the page that says so.

`python -m helpers.comparison` (`make compare`) asks both and writes the record of Triton's answers
and docs/compatibility.md. Tests ask headrace alone and look into the record.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.compared_models import LOADED, write_both
from helpers.compared_page import page
from helpers.differences import DIFFERENCES
from helpers.environments import CLIENTS, ROOT, TRITONCLIENT, python_environment, run
from helpers.server import NO_DEBUG, serving
from helpers.triton_server import TRITON, WHEEL, triton_serving

Outcomes = dict[str, dict[str, Any]]

RECORD = ROOT / "tests" / "peers" / "triton_outcomes.json"
PAGE = ROOT / "docs" / "compatibility.md"
NEWEST = next(iter(TRITONCLIENT))
CASES_S = 120.0


@dataclass(frozen=True)
class Setup:
    """How both servers are started for some of the cases.

    Args:
        flags: For both.
        ours: For headrace alone: what it has switched off and Triton has not.
    """

    flags: tuple[str, ...]
    ours: tuple[str, ...] = ()


_LOADS = " ".join(f"--load-model={name}" for name in LOADED)
_EXPLICIT = ("--model-control-mode=explicit", *_LOADS.split())
SETUPS: Mapping[str, Setup] = {
    "explicit": Setup(_EXPLICIT, ("--allow-model-uploads",)),
    "fixed": Setup(("--exit-on-error=false", "--strict-readiness=false")),
    "restricted": Setup(
        (*_EXPLICIT, "--grpc-restricted-protocol=model-repository,model-config:admin-key=secret")
    ),
    "shared": Setup(_EXPLICIT, ("--allow-client-shm",)),
    "sequences": Setup(("--model-control-mode=explicit", "--load-model=turns")),
    "ensembles": Setup(
        ("--model-control-mode=explicit", "--load-model=chain", "--load-model=fragile")
    ),
    "cached": Setup((*_EXPLICIT, "--load-model=kept", "--cache-config=local,size=1048576")),
}


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headrace-compare-") as made:
        yield Path(made)


def ask_headrace(name: str, client: str = NEWEST, *flags: str) -> Outcomes:
    """What headrace, with more flags, answers in one set-up to this version of tritonclient."""
    setup = SETUPS[name]
    with _folder() as folder:
        repository, _ = write_both(folder)
        flags = (*setup.flags, *setup.ours, *flags)
        with serving("--model-repository", repository, *flags, env=NO_DEBUG) as server:
            return _ask(server.address, name, client, _payload(repository, "onnxruntime"))


def ask_triton(name: str, client: str = NEWEST) -> Outcomes:
    """What Triton answers in one set-up; it is started again where a case ends it."""
    left: list[str] = json.loads(_script(client, "", name, ""))
    seen: Outcomes = {}
    while left:
        with _folder() as folder:
            _, repository = write_both(folder)
            home = folder / "server"
            home.mkdir()
            with triton_serving(repository, home, SETUPS[name].flags) as address:
                seen |= _ask(address, name, client, _payload(repository, "python"), *left)
        left = [case for case in left if case not in seen]
    return seen


def _payload(repository: Path, backend: str) -> str:
    (file,) = (repository / "spare" / "1").glob("model.*")
    return json.dumps({"backend": backend, "file": str(file), "name": file.name})


def _ask(address: str, name: str, client: str, payload: str, *cases: str) -> Outcomes:
    outcomes: Outcomes = json.loads(_script(client, address, name, payload, *cases))
    return outcomes


def _script(client: str, *arguments: str) -> str:
    interpreter = python_environment(f"tritonclient-{client}", *TRITONCLIENT[client])
    return run([interpreter, CLIENTS / "compare", *arguments], timeout_s=CASES_S)


def recorded() -> dict[str, Outcomes]:
    """What Triton answered when it was asked last, by set-up."""
    record: dict[str, Outcomes] = json.loads(RECORD.read_text())
    return record


def unexpected(name: str, ours: Outcomes, theirs: Outcomes) -> dict[str, tuple[Any, Any]]:
    """Cases that differ and are not on the list, or are on it and do not differ."""
    return {
        case: (outcome, theirs[case])
        for case, outcome in ours.items()
        if (outcome != theirs[case]) != ((name, case) in DIFFERENCES)
    }


def written(ours: Mapping[str, Outcomes], theirs: Mapping[str, Outcomes]) -> str:
    """The page of these outcomes."""
    setups = {
        name: (" ".join(each.flags).replace(_LOADS, "--load-model=…"), " ".join(each.ours))
        for name, each in SETUPS.items()
    }
    return page(ours, theirs, DIFFERENCES, setups, f"`{WHEEL}` ({TRITON})")


def main() -> int:
    """Ask both servers everything; 1 when the list of differences is not what was seen."""
    theirs = {name: ask_triton(name) for name in SETUPS}
    ours = {name: ask_headrace(name) for name in SETUPS}
    RECORD.write_text(json.dumps(theirs, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    PAGE.write_text(written(ours, theirs))
    found = {name: unexpected(name, ours[name], theirs[name]) for name in SETUPS}
    for name, cases in found.items():
        for case, (one, other) in cases.items():
            print(
                f"{name}: {case}\n    headrace {json.dumps(one)}\n    Triton   {json.dumps(other)}"
            )
    total = sum(map(len, ours.values()))
    print(f"{total} cases, {len(DIFFERENCES)} differ, {sum(map(len, found.values()))} unexpected")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
