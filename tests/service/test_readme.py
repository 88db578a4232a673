"""The README's examples, run as they stand against a server of the demo models."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from helpers.documented import examples, run_examples
from helpers.server import HEADRACE, serving
from helpers.tree import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from helpers.server import Server

README = (REPOSITORY / "README.md").read_text("utf-8")
EXAMPLES = examples("README.md")
DIGITS = REPOSITORY / "deploy" / "models" / "digits" / "1" / "model.onnx"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of the demo models."""
    with serving("--model-repository", REPOSITORY / "deploy" / "models") as running:
        yield running


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_python_examples_print_a_label(number: int, server: Server) -> None:
    """Each example is complete once numpy is imported, and prints the label of a blank image."""
    printed = run_examples(["import numpy as np", EXAMPLES[number]], server.address)
    assert re.fullmatch(r"\[\[\d\]\]\n", printed)


def test_a_model_file_is_served_under_its_name() -> None:
    """`headrace serve model.onnx` and `headrace-client metadata model` fit together."""
    assert "$ headrace serve model.onnx\n$ headrace-client metadata model\n" in README
    with serving(DIGITS) as running:
        client = str(HEADRACE.with_name("headrace-client"))
        command = [client, "metadata", "model", "--url", running.address]
        shown = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "probabilities" in shown.stdout
