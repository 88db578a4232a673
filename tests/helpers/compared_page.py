"""docs/compatibility.md: the cases of the comparison with Triton and what came of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

Outcome = Mapping[str, Any]
Outcomes = Mapping[str, Mapping[str, Outcome]]  # by set-up and case

_SHOWN_CHARS = 160
_HEAD = """# What differs from Triton

{total} calls by tritonclient, or by its stubs where the client would not send them, to the real
tritonserver and to headrace, with equal models and equal flags. Compared are the gRPC status and
what the answer says (names, shapes, values, versions, states, counts), not the texts. {same} came
out the same; the other {different} stand below, each with its reason. Triton is the server in the
wheel {wheel}, with models of its Python backend; headrace runs the same models in ONNX Runtime.

`make compare` asks both again and writes this page. Tests ask headrace, by tritonclient 2.73 and
2.58 and under both transports, and look Triton's answers up in a record of them
(`tests/peers/triton_outcomes.json`).

| set-up | both are started with | headrace also with | cases | the same |
| --- | --- | --- | --- | --- |
"""


def page(
    ours: Outcomes,
    theirs: Outcomes,
    differences: Mapping[tuple[str, str], str],
    setups: Mapping[str, tuple[str, str]],
    wheel: str,
) -> str:
    """The page.

    Args:
        ours: headrace's outcomes.
        theirs: Triton's, of the same cases.
        differences: Why they differ.
        setups: The flags of both and of headrace alone, by set-up.
        wheel: Where Triton came from.
    """
    total = sum(map(len, ours.values()))
    lines = [
        _HEAD.format(
            total=total, same=total - len(differences), different=len(differences), wheel=wheel
        ).rstrip()
    ]
    for name, (both, alone) in setups.items():
        same = sum(ours[name][case] == theirs[name][case] for case in ours[name])
        lines.append(f"| {name} | {_code(both)} | {_code(alone)} | {len(ours[name])} | {same} |")
    lines += ["", "## What differs, and why"]
    for reason, cases in _by_reason(differences):
        lines += ["", reason, "", "| set-up: case | Triton | headrace |", "| --- | --- | --- |"]
        for name, case in cases:
            one, other = theirs[name][case], ours[name][case]
            lines.append(f"| {name}: {case} | {shown(one, other)} | {shown(other, one)} |")
    lines += ["", "## What is the same"]
    for name in setups:
        lines += ["", f"**{name}**", ""]
        same_cases = {
            case: each for case, each in ours[name].items() if (name, case) not in differences
        }
        lines += _by_code(same_cases)
    return "\n".join(lines) + "\n"


def shown(outcome: Outcome, other: Outcome) -> str:
    """A status, and what of the answer is not as in the other."""
    facts = {key: value for key, value in outcome.items() if key != "code"}
    facts = {key: value for key, value in facts.items() if other.get(key, ...) != value}
    text = " ".join(
        f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in facts.items()
    )
    if len(text) > _SHOWN_CHARS:
        text = text[:_SHOWN_CHARS] + " …"
    code = str(outcome["code"])
    is_answer = bool(text) and other["code"] == code
    return f"{code}: {_code(text)}" if is_answer else code


def _by_reason(
    differences: Mapping[tuple[str, str], str],
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for reason, cases in groupby(differences, key=lambda case: differences[case]):
        yield reason, list(cases)


def _by_code(cases: Mapping[str, Outcome]) -> Iterator[str]:
    codes = sorted(
        {str(each["code"]) for each in cases.values()}, key=lambda code: (code != "OK", code)
    )
    for code in codes:
        names = "; ".join(case for case, each in cases.items() if each["code"] == code)
        yield f"- {code}: {names}"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
