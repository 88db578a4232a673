"""The demo: serve two models, send them real inputs, and show what came back and how long it took.

python deploy/demo/run.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import magika
import numpy as np
from report import Pixels, Row, drawing, table
from served_magika import ServedMagika, real_files, write_repository
from server_process import Addresses, DemoError, serving
from sklearn.datasets import load_digits
from stages import SHOWN, StageClock

from headrace_client import Client, HeadraceClientError

MODELS = Path(__file__).parents[1] / "models"
NUM_DRAWN = 6
BATCH_ROWS = 32
ACCURACY_MIN = 0.97


def main() -> int:
    """Run the demo; 0 when everything is right, 1 with the reason when something is not."""
    parser = argparse.ArgumentParser(description="Serve two models and send them real inputs.")
    parser.add_argument("--models", type=Path, default=MODELS, help="where the digits model is")
    models: Path = parser.parse_args().models
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-demo-") as scratch:
            write_repository(Path(scratch))
            with serving([models, Path(scratch)]) as addresses:
                print(f"headrace serves digits and magika on {addresses.grpc}\n")
                with Client(addresses.grpc, timeout_s=30) as client:
                    show_digits(client, addresses)
                    show_files(client, addresses)
    except (DemoError, HeadraceClientError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(
        "stopped by SIGTERM, exit code 0; latencies by stage, in milliseconds, are the server's own"
    )
    return 0


def show_digits(client: Client, addresses: Addresses) -> None:
    """Classify every image that training never saw, and show a few of them one by one."""
    digits = load_digits()
    pixels: Pixels = digits.data[3::4].astype(np.float32)  # what train_digits.py holds out
    truth = digits.target[3::4]
    print("digits: images that training never saw, as they are sent\n")
    print(drawing(pixels[:NUM_DRAWN]), end="\n\n")
    clock = StageClock(addresses.metrics, "digits")
    rows = []
    for index in range(NUM_DRAWN):
        outputs = client.infer("digits", {"input": pixels[index : index + 1]})
        label, chance = int(outputs["label"][0, 0]), float(outputs["probabilities"].max())
        answer = f"{label} ({100 * chance:.1f} %)"
        rows.append(Row(f"a {truth[index]}", answer, label == truth[index], clock.lap()))
    print(table(rows, SHOWN), end="\n\n")
    batches = (pixels[start : start + BATCH_ROWS] for start in range(0, len(pixels), BATCH_ROWS))
    labels = [client.infer("digits", {"input": batch})["label"][:, 0] for batch in batches]
    num_right = int(np.sum(np.concatenate(labels) == truth))
    accuracy = num_right / len(truth)
    print(f"digits: {num_right} of {len(truth)} held-out images right, accuracy {accuracy:.4f}\n")
    if accuracy < ACCURACY_MIN:
        raise DemoError(f"accuracy is {accuracy:.4f}; expected at least {ACCURACY_MIN}")


def show_files(client: Client, addresses: Addresses) -> None:
    """Tell the type of real files, through the server and by the package alone."""
    print("magika: files of this installation; correct is what the package itself answers\n")
    served, alone = ServedMagika(client), magika.Magika()
    clock = StageClock(addresses.metrics, "magika")
    rows = []
    for path in real_files():
        answer, expected = served.identify_path(path), alone.identify_path(path)
        text = f"{answer.output.label} ({100 * answer.score:.1f} %)"
        is_correct = answer.output.label == expected.output.label
        rows.append(Row(path.name, text, is_correct, clock.lap()))
    print(table(rows, SHOWN), end="\n\n")
    wrong = [row.name for row in rows if not row.is_correct]
    if wrong:
        raise DemoError(f"magika by the server differs from the package for {', '.join(wrong)}")


if __name__ == "__main__":
    sys.exit(main())
